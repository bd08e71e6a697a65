#include "tests/io/allocation_meter.h"

#include <cstdlib>
#include <new>

namespace tessera::testing {

std::atomic<size_t> allocated_bytes{0};

}  // namespace tessera::testing

// These are not inlined: the compiler would take malloc and delete for a mismatched pair.
[[gnu::noinline]] void* operator new(size_t size) {
  tessera::testing::allocated_bytes += size;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
