// The project's counter-based random numbers (core/rng.h).
#pragma once

#include "tessera/ops/cuda/vectors.cuh"

namespace tessera::ops::cuda {

// The four words of one counter.
struct Words {
  uint32_t w[4];
};

// Returns the words of CounterRng::words(counter), by Philox4x32-10.
__device__ inline Words philox(const RandomKey& key, uint64_t counter) {
  uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
  uint32_t c2 = static_cast<uint32_t>(key.step), c3 = static_cast<uint32_t>(key.step >> 32);
  uint32_t k0 = key.key[0], k1 = key.key[1];
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c0, p1 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace tessera::ops::cuda
