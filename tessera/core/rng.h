// Counter-based random numbers: every number is a pure function of (seed, step, stream, index), so
// any layout of a tensor over ranks draws the same numbers and no generator state is ever saved.
#pragma once

#include <array>
#include <cstdint>

namespace tessera {

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11): four 32-bit
// words for a 128-bit counter and a 64-bit key.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A random function of a global element index. Copyable, stateless, thread-safe.
class CounterRng {
 public:
  // `stream` separates uses (one for each parameter, dropout site, shuffle); `step` separates optimizer
  // steps or epochs.
  CounterRng(uint64_t seed, uint64_t stream, uint64_t step = 0);

  // Uniform 64 bits of element `index`.
  uint64_t bits(uint64_t index) const;
  // Uniform in [0, 1), with 53 random bits.
  double uniform(uint64_t index) const;
  // Standard normal (Box-Muller over the element's own two uniforms).
  double normal(uint64_t index) const;
  // Uniform in [0, bound); bound > 0. Bias below 2^-32 for bounds below 2^32.
  uint64_t below(uint64_t index, uint64_t bound) const;
  // Returns the four words that all functions above use: philox4x32 of (index, step) under key().
  std::array<uint32_t, 4> words(uint64_t index) const;
  std::array<uint32_t, 2> key() const { return key_; }

 private:
  std::array<uint32_t, 2> key_;
  uint64_t high_;
};

// 64-bit FNV-1a, to make a stream number out of a parameter or site name.
uint64_t stream_of(const char* name);

}  // namespace tessera
