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
  to.bits = static_cast<uint16_t>(x != x ? 0x7fc0u : rounded);
}

// The value of x after a trip through the stored type T.
template <class T, class C>
TESSERA_INLINE C round_through(C x) {
  T stored;
  store(stored, x);
  return load(stored);
}

constexpr float kRoundToInteger =
    12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits

// exp(z - n ln2) for n = the integer nearest to z / ln2, which is left in the low bits of `shifted`: a
// polynomial on [-ln2/2, ln2/2], to 2 units in the last place.
TESSERA_INLINE float reduced_exponential(float z, float& shifted) {
  shifted = z * 1.44269504f + kRoundToInteger;
  const float n = shifted - kRoundToInteger;
  const float r = (z - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return p * r * r + r + 1.0f;
}

TESSERA_INLINE double exponential(double x) { return exp(x); }

// exp(x). 0 below -87.3, infinity above 88.7, NaN for NaN.
TESSERA_INLINE float exponential(float x) {
  const float low = x < -87.3f ? -87.3f : x;
  float shifted;
  const float p = reduced_exponential(low > 88.72f ? 88.72f : low, shifted);
  // 2^n in two factors, as n may be 128.
  const uint32_t exponent = bits_of(shifted) - bits_of(kRoundToInteger);
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(exponent) >> 1);
  const float scaled = p * float_of((half + 127u) << 23) * float_of((exponent - half + 127u) << 23);
  const float not_small = x < -87.3f ? 0.0f : scaled;
  return x > 88.72f ? INFINITY : not_small;
}

// exp(x) for x <= 0, as after the subtraction of a maximum; NaN for NaN.
TESSERA_INLINE double exponential_below_one(double x) { return exp(x); }
TESSERA_INLINE float exponential_below_one(float x) {
  float shifted;
  const float p = reduced_exponential(x < -87.0f ? -87.0f : x, shifted);
  // Adding n to the exponent: the result is a normal number.
  const float scaled = float_of(bits_of(p) + (bits_of(shifted) << 23));
  return x < -87.0f ? 0.0f : (x != x ? x : scaled);
}

TESSERA_INLINE double sigmoid(double x) { return 1.0 / (1.0 + exponential(-x)); }
TESSERA_INLINE float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

}  // namespace tessera::ops::kernels
