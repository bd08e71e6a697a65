// Arithmetic on sixteen floats at a time, for loops that the vectoriser does not turn into good code by
// itself. The types are the compiler's vector types: one register with AVX-512, two or four without.
#pragma once

#include <cstdint>
#include <cstring>

#include "tessera/ops/kernels/vector_math.h"

namespace tessera::ops::kernels {

constexpr int64_t kLanes = 16;

typedef float Lanes __attribute__((vector_size(64)));
typedef int32_t LaneInts __attribute__((vector_size(64)));
typedef uint32_t LaneBits __attribute__((vector_size(64)));
typedef uint16_t LaneHalves __attribute__((vector_size(32)));

TESSERA_INLINE LaneBits bits_of(Lanes x) { return reinterpret_cast<LaneBits>(x); }
TESSERA_INLINE Lanes lanes_of(LaneBits bits) { return reinterpret_cast<Lanes>(bits); }
TESSERA_INLINE Lanes all_lanes(float x) { return x - Lanes{}; }

TESSERA_INLINE Lanes load_lanes(const float* from) {
  Lanes x;
  memcpy(&x, from, sizeof x);
  return x;
}
TESSERA_INLINE Lanes load_lanes(const Bf16* from) {
  LaneHalves halves;
  memcpy(&halves, from, sizeof halves);
  return lanes_of(__builtin_convertvector(halves, LaneBits) << 16);
}
TESSERA_INLINE void store_lanes(float* to, Lanes x) { memcpy(to, &x, sizeof x); }
// Rounds to nearest even; NaN stays NaN.
TESSERA_INLINE void store_lanes(Bf16* to, Lanes x) {
  const LaneBits bits = bits_of(x);
  const LaneBits rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const LaneHalves halves = __builtin_convertvector(x == x ? rounded : LaneBits{} + 0x7fc0u, LaneHalves);
  memcpy(to, &halves, sizeof halves);
}

// Returns b in lanes in which one of the two is NaN.
TESSERA_INLINE Lanes larger(Lanes a, Lanes b) { return a > b ? a : b; }

TESSERA_INLINE float largest_of(Lanes x) {
  float top = x[0];
  for (int i = 1; i < kLanes; ++i) top = x[i] > top ? x[i] : top;
  return top;
}
TESSERA_INLINE float sum_of(Lanes x) {
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += x[i];
  return sum;
}

// Returns -1 in the lanes whose number is less than n, else 0.
TESSERA_INLINE LaneInts first_lanes(int64_t n) {
  constexpr LaneInts kNumbers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return kNumbers < static_cast<int32_t>(n);
}

// Thirty-two elements in an order that depends on their type alone: even and odd elements of bf16 stay
// together, as shifts alone then take them apart and put them together.
struct Pair {
  Lanes a, b;
};
constexpr int64_t kPair = 2 * kLanes;

TESSERA_INLINE Pair load_pair(const float* from) { return {load_lanes(from), load_lanes(from + kLanes)}; }
TESSERA_INLINE Pair load_pair(const Bf16* from) {
  LaneBits words;
  memcpy(&words, from, sizeof words);
  return {lanes_of(words << 16), lanes_of(words & 0xffff0000u)};
}
TESSERA_INLINE void store_pair(float* to, Pair x) {
  store_lanes(to, x.a);
  store_lanes(to + kLanes, x.b);
}
// Returns the nearest bf16, ties to even, in the upper half of each lane; the lower half is arbitrary. NaN
// stays NaN.
TESSERA_INLINE LaneBits rounded_bits(Lanes x) {
  const LaneBits bits = bits_of(x);
  return x == x ? bits + 0x7fffu + ((bits >> 16) & 1u) : LaneBits{} + 0x7fc00000u;
}
TESSERA_INLINE void store_pair(Bf16* to, Pair x) {
  const LaneBits words = (rounded_bits(x.a) >> 16) | (rounded_bits(x.b) & 0xffff0000u);
  memcpy(to, &words, sizeof words);
}

// Load and store the first n < 32 elements, with zeros for the others; nothing is read or written beyond
// them.
template <class T>
TESSERA_INLINE Pair load_first(const T* from, int64_t n) {
  T padded[kPair] = {};
  memcpy(padded, from, static_cast<size_t>(n) * sizeof(T));
  return load_pair(padded);
}
template <class T>
TESSERA_INLINE void store_first(T* to, Pair x, int64_t n) {
  T padded[kPair];
  store_pair(padded, x);
  memcpy(to, padded, static_cast<size_t>(n) * sizeof(T));
}

// Returns x after a trip through the stored type T.
template <class T>
TESSERA_INLINE Lanes rounded_to(Lanes x) {
  return sizeof(T) == sizeof(float) ? x : lanes_of(rounded_bits(x) & 0xffff0000u);
}

// Returns 2^(z / ln2) for z in [-87, 88].
TESSERA_INLINE Lanes normal_exponential(Lanes z) {
  const Lanes shifted = z * 1.44269504f + kRoundToInteger;
  const Lanes n = shifted - kRoundToInteger;
  const Lanes r = (z - n * 0.693359375f) + n * 2.12194440e-4f;
  Lanes p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + (r + 1.0f);
  // Adding n to the exponent's bits multiplies by 2^n: the result is a normal number.
  return lanes_of(bits_of(p) + (bits_of(shifted) << 23));
}

// Does in every lane what exponential_below_one(float) does.
TESSERA_INLINE Lanes exponential_below_one(Lanes x) {
  const Lanes low = all_lanes(-87.0f);
  const Lanes result = normal_exponential(x < low ? low : x);
  // A lane that is NaN compares false, and keeps itself.
  return x >= low ? result : (x < low ? Lanes{} : x);
}

// Returns 1 + exp(x), with exp() kept between e^-87 and e^88; NaN for NaN.
TESSERA_INLINE Lanes one_plus_exponential(Lanes x) {
  const Lanes low = all_lanes(-87.0f), high = all_lanes(88.0f);
  const Lanes above = x < low ? low : x;
  const Lanes result = normal_exponential(above > high ? high : above) + 1.0f;
  return x == x ? result : x;
}

// Returns tanh(x), with an error of 1e-7.
TESSERA_INLINE Lanes hyperbolic_tangent(Lanes x) { return 1.0f - 2.0f / one_plus_exponential(2.0f * x); }

}  // namespace tessera::ops::kernels
