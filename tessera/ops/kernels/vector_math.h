// Parts that the kernel sources share: the instruction sets they are compiled for, and branch-free scalar
// code that the compiler turns into vectors.
#pragma once

#include <cstdint>
#include <cstring>

#include <math.h>

#include "tessera/core/cpu_features.h"
#include "tessera/ops/kernels/kernels.h"

#define TESSERA_INLINE [[gnu::always_inline]] static inline

// The value of an expression that calls a TESSERA_INLINE function with plain loops, compiled once for each
// instruction set and run by the best that usable_isa() allows.
#define TESSERA_BEST_ISA(...) run_on_best_isa([=]() __attribute__((always_inline)) { return __VA_ARGS__; })
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TESSERA_ISA_TARGET(name) [[gnu::target(name)]]
#else
#define TESSERA_ISA_TARGET(name)
#endif

namespace tessera::ops::kernels {

template <class Run>
auto run_on_baseline(const Run& run) {
  return run();
}
template <class Run>
TESSERA_ISA_TARGET("avx2,fma")
auto run_on_avx2(const Run& run) {
  return run();
}
template <class Run>
TESSERA_ISA_TARGET("avx512f,avx512bw,avx512dq,avx512vl,fma")
auto run_on_avx512(const Run& run) {
  return run();
}
template <class Run>
auto run_on_best_isa(const Run& run) {
  const Isa isa = usable_isa();
  return isa >= Isa::Avx512 ? run_on_avx512(run) : isa == Isa::Avx2 ? run_on_avx2(run) : run_on_baseline(run);
}

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
// Rounds to nearest even; NaN stays NaN.
TESSERA_INLINE void store(Bf16& to, float x) {
  const uint32_t bits = bits_of(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  to.bits = static_cast<uint16_t>(x != x ? 0x7fc0u : rounded);
}

// Returns x after a trip through the stored type T.
template <class T, class C>
TESSERA_INLINE C round_through(C x) {
  T stored;
  store(stored, x);
  return load(stored);
}

constexpr float kRoundToInteger =
    12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits

// Returns exp(x) for x <= 0, such as scores less their maximum, to 2 units in the last place; 0 below -87;
// NaN for NaN.
TESSERA_INLINE double exponential_below_one(double x) { return exp(x); }
TESSERA_INLINE float exponential_below_one(float x) {
  // The result is 2^n times a polynomial on [-ln2/2, ln2/2], with n left in the low bits of `shifted`.
  const float z = x < -87.0f ? -87.0f : x;
  const float shifted = z * 1.44269504f + kRoundToInteger;
  const float n = shifted - kRoundToInteger;
  const float r = (z - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + (r + 1.0f);
  // Adding n to the exponent's bits multiplies by 2^n: the result is a normal number.
  const float scaled = float_of(bits_of(p) + (bits_of(shifted) << 23));
  return x < -87.0f ? 0.0f : (x != x ? x : scaled);
}

}  // namespace tessera::ops::kernels
