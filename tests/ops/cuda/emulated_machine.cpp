// The machine that is the emulation, on memory whose end the address sanitizer guards.
#include <cstdio>
#include <cstdlib>
#include <new>
#include <random>

#include "tests/ops/cuda/emulation.h"
#include "tests/ops/cuda/machine.h"

extern "C" const tessera::ops::cuda::CudaKernels* tessera_cuda_kernels();

namespace tessera::ops::cuda {
namespace {

class Emulated : public Machine {
 public:
  Emulated() {
    const char* given = std::getenv("TESSERA_EMULATION_SEED");
    emulation::seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
    std::printf("order of threads: TESSERA_EMULATION_SEED=%llu\n",
                static_cast<unsigned long long>(emulation::seed));
  }
  const CudaKernels& kernels() const override { return *tessera_cuda_kernels(); }
  std::shared_ptr<char> allocate(size_t bytes) const override {
    // The block has exactly this size, so that the sanitizer finds an access behind the last byte.
    void* block = nullptr;
    if (posix_memalign(&block, 256, bytes) != 0) throw std::bad_alloc();
    std::memset(block, 0xff, bytes);
    return {static_cast<char*>(block), std::free};
  }
  void write(void* to, const void* from, size_t bytes) const override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void read(void* to, const void* from, size_t bytes) const override { write(to, from, bytes); }
};

}  // namespace

const Machine* machine() {
  static const Emulated instance;
  return &instance;
}
const char* why_no_machine() { return ""; }

void with_small_grids(const std::function<void()>& body) {
  emulation::max_blocks = 2;
  body();
  emulation::max_blocks = 0x7fffffff;
}

}  // namespace tessera::ops::cuda
