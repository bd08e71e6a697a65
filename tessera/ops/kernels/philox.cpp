#include "tessera/ops/kernels/vector_math.h"

namespace tessera::ops::kernels {
namespace {

template <class T>
TESSERA_INLINE void select(const uint32_t* words, uint32_t threshold, double keep, T* out, int64_t n) {
  T zero, kept;
  store(zero, ComputeType<T>(0));
  store(kept, static_cast<ComputeType<T>>(keep));
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = words[i] < threshold ? zero : kept;
}

TESSERA_INLINE void rounds(uint64_t first, uint64_t high, std::array<uint32_t, 2> key, uint32_t* words,
                           int64_t blocks) {
  const uint32_t high_low = static_cast<uint32_t>(high), high_high = static_cast<uint32_t>(high >> 32);
  const uint32_t first_key = key[0], second_key = key[1];
#pragma omp simd
  for (int64_t block = 0; block < blocks; ++block) {
    const uint64_t counter = first + static_cast<uint64_t>(block);
    uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
    uint32_t c2 = high_low, c3 = high_high;
    uint32_t k0 = first_key, k1 = second_key;
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c0, p1 = uint64_t{0xCD9E8D57} * c2;
      c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c1 = static_cast<uint32_t>(p1);
      c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c3 = static_cast<uint32_t>(p0);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    words[4 * block] = c0;
    words[4 * block + 1] = c1;
    words[4 * block + 2] = c2;
    words[4 * block + 3] = c3;
  }
}

}  // namespace

void philox_blocks(uint64_t first, uint64_t high, std::array<uint32_t, 2> key, uint32_t* words,
                   int64_t blocks) {
  return TESSERA_BEST_ISA(rounds(first, high, key, words, blocks));
}

#define TESSERA_DEFINE(T)                                                                           \
  void select_at_least(const uint32_t* words, uint32_t threshold, double keep, T* out, int64_t n) { \
    return TESSERA_BEST_ISA(select(words, threshold, keep, out, n));                                \
  }
TESSERA_DEFINE(float)
TESSERA_DEFINE(double)
TESSERA_DEFINE(Bf16)
#undef TESSERA_DEFINE

}  // namespace tessera::ops::kernels
