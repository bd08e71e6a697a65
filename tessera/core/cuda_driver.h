// NVIDIA's driver, asked without any library of CUDA: whether there is one, and which devices it offers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::cuda {

struct Gpu {
  std::string name;          // "NVIDIA H200"
  int64_t memory_bytes = 0;  // all that it has
  int major = 0, minor = 0;  // its compute capability: 9.0 is Hopper
  int multiprocessors = 0;
};

struct Driver {
  bool is_there = false;   // its library could be opened
  int cuda_version = 0;    // the newest CUDA that it offers: 13000 is 13.0
  std::vector<Gpu> gpus;   // those that this process may use (CUDA_VISIBLE_DEVICES)
  std::string why_no_gpu;  // one line; empty if there is a GPU
};

// Opens libcuda.so.1, initialises it and asks for devices. Only the first call asks; its answer is kept. On a
// machine that has no driver this costs a few microseconds. Makes no context and takes no memory of a device.
// Thread-safe.
const Driver& driver();

// Describes a GPU: "NVIDIA H200 (139 GiB, 132 multiprocessors, compute capability 9.0)".
std::string describe(const Gpu& gpu);

}  // namespace tessera::cuda
