// What the kernel sources share: the instruction sets they are compiled for, and branch-free scalar code
// that the compiler turns into vectors.
#pragma once

#include <cstdint>
#include <cstring>

#include <math.h>

#include "tessera/ops/kernels/kernels.h"

// On a function with plain loops: one copy an instruction set, the best one chosen when the program is
// loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define TESSERA_KERNEL __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define TESSERA_KERNEL
#endif
#define TESSERA_INLINE [[gnu::always_inline]] static inline

namespace tessera::ops::kernels {

TESSERA_INLINE uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

TESSERA_INLINE float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

TESSERA_INLINE float load(float x) { return x; }
TESSERA_INLINE double load(double x) { return x; }
TESSERA_INLINE float load(Bf16 x) { return float_of(static_cast<uint32_t>(x.bits) << 16); }

TESSERA_INLINE void store(float& to, float x) { to = x; }
TESSERA_INLINE void store(double& to, double x) { to = x; }
// Round to nearest even; NaN stays NaN.
TESSERA_INLINE void store(Bf16& to, float x) {
  const uint32_t bits = bits_of(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40u;
  to.bits = static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

// The value of x after a trip through the stored type T.
template <class T, class C>
TESSERA_INLINE C round_through(C x) {
  T stored;
  store(stored, x);
  return load(stored);
}

TESSERA_INLINE double exponential(double x) { return exp(x); }

// exp(x) to 2 units in the last place: 2^n times a polynomial on [-ln2/2, ln2/2]. 0 below -87.3, infinity
// above 88.7, NaN for NaN.
TESSERA_INLINE float exponential(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const float low = x < -87.3f ? -87.3f : x;
  const float z = low > 88.72f ? 88.72f : low;
  const float shifted = z * 1.44269504f + kRound;
  const float n = shifted - kRound;
  const float r = (z - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // 2^n in two factors, as n may be 128.
  const uint32_t exponent = bits_of(shifted) - bits_of(kRound);
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(exponent) >> 1);
  const float scaled = p * float_of((half + 127u) << 23) * float_of((exponent - half + 127u) << 23);
  const float not_small = x < -87.3f ? 0.0f : scaled;
  return x > 88.72f ? INFINITY : not_small;
}

TESSERA_INLINE double sigmoid(double x) { return 1.0 / (1.0 + exponential(-x)); }
TESSERA_INLINE float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

}  // namespace tessera::ops::kernels
