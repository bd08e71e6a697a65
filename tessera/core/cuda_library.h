// The CUDA part of LibTorch and Tessera's kernels for it. The program links neither: it opens them where a
// device asks for CUDA, so one binary serves machines with and without a GPU.
#pragma once

#include <string>

#include "tessera/core/shared_library.h"

namespace tessera::cuda {

// The first thing for want of which LibTorch's CUDA part is not open, in the order in which open() needs
// them. Request: open() has not been called. Nothing: it is open.
enum class Missing { Nothing, Request, Driver, Device, Library };

// Asks the driver for devices; if there are some, opens libtorch_cuda.so for the whole process. The first
// call decides. LibTorch looks for its CUDA part once, at the first operation that asks for it, and keeps the
// answer: call this before anything else of LibTorch. resolve_device() (device.h) does, and the verbs of the
// program call that first.
//
// Has LibTorch's allocator grow its segments in place (PYTORCH_ALLOC_CONF=expandable_segments:True), unless
// the environment says otherwise. Returns is_open(). Thread-safe.
bool open();

// Tells whether libtorch_cuda.so is open and the driver has a device; false before open().
bool is_open();
// Tells what keeps is_open() from being true.
Missing missing();
// Says why is_open() is false, in one line without a full stop; empty if it is true.
std::string why_not();
// Says what a user can do about it, for the hint of an error; may be empty.
std::string what_to_do();

// The folder of the LibTorch that this process has; empty if LibTorch is linked in another way.
std::string libtorch_folder();

// Opens libtessera_cuda.so, which has Tessera's own kernels; gives none unless is_open().
SharedLibrary own_kernels_library();

}  // namespace tessera::cuda
