// The CUDA part of LibTorch and Tessera's kernels for it. The program links neither: it opens them where a
// device asks for CUDA, so one binary serves machines with and without a GPU.
#pragma once

#include <string>

#include "tessera/core/shared_library.h"

namespace tessera::cuda {

// What opening came to; what comes first is told first.
enum class Missing { Nothing, Request, Driver, Device, Library };

// Asks the driver for devices; where there are some, opens libtorch_cuda.so for the whole process. The first
// call decides. LibTorch looks for its CUDA part once, at the first operation that asks for it, and keeps the
// answer: call this before anything else of LibTorch. resolve_device() (device.h) does, and the verbs of the
// program call that first.
//
// Has LibTorch's allocator grow its segments in place (PYTORCH_ALLOC_CONF=expandable_segments:True), unless
// the environment says otherwise. Returns is_open(). Thread-safe.
bool open();

// Whether libtorch_cuda.so is open and the driver has a device; false before open().
bool is_open();
// What keeps is_open() from being true.
Missing missing();
// The same in one line, without an end; empty where is_open().
std::string why_not();
// What a user can do about it, for the hint of an error.
std::string what_to_do();

// The folder of the LibTorch that this process has; empty where it is linked in another way.
std::string libtorch_folder();

// libtessera_cuda.so, with Tessera's own kernels; none before is_open().
SharedLibrary own_kernels_library();

}  // namespace tessera::cuda
