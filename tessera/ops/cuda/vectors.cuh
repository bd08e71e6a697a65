// Element types of the kernels, and loads and stores of several elements at once.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/ops/cuda/kernels.h"

namespace tessera::ops::cuda {

struct Bf16 {
  uint16_t bits;
};
struct Half {
  uint16_t bits;
};

// Returns the bits of two floats rounded to bf16, the first in the low half: to nearest even; NaN stays NaN.
__device__ inline uint32_t bf16_pair(float low, float high) {
#ifdef __CUDA_ARCH__
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  const auto rounded = [](float x) {
    const uint32_t bits = __float_as_uint(x);
    return x != x ? 0x7fc0u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  };
  return rounded(low) | rounded(high) << 16;
#endif
}

__device__ inline float half_to_float(uint16_t half) {
#ifdef __CUDA_ARCH__
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
  return x;
#else
  const uint32_t magnitude = (half & 0x7fffu) << 13, exponent = magnitude & 0x0f800000u;
  const uint32_t normal = magnitude + (exponent == 0x0f800000u ? 224u << 23 : 112u << 23);
  // A denormal half is its fraction times 2^-24.
  const float denormal = __uint_as_float(magnitude + (113u << 23)) - __uint_as_float(113u << 23);
  const uint32_t bits = exponent == 0 ? __float_as_uint(denormal) : normal;
  return __uint_as_float(bits | (half & 0x8000u) << 16);
#endif
}

__device__ inline uint16_t float_to_half(float x) {
#ifdef __CUDA_ARCH__
  uint16_t half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
  return half;
#else
  const uint32_t bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu;
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;
  // Below the smallest normal half: adding 0.5 leaves the rounded denormal in the low bits.
  if (magnitude < 0x38800000u) {
    return sign | static_cast<uint16_t>(__float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u);
  }
  return sign | static_cast<uint16_t>((magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13);
#endif
}

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(Bf16 x) { return __uint_as_float(static_cast<uint32_t>(x.bits) << 16); }
__device__ inline float widen(Half x) { return half_to_float(x.bits); }

__device__ inline void narrow(float x, float& to) { to = x; }
__device__ inline void narrow(float x, double& to) { to = x; }
__device__ inline void narrow(float x, Bf16& to) { to.bits = static_cast<uint16_t>(bf16_pair(x, 0.0f)); }
__device__ inline void narrow(float x, Half& to) { to.bits = float_to_half(x); }

// Returns x after a trip through T.
template <class T>
__device__ float round_through(float x) {
  T stored;
  narrow(x, stored);
  return widen(stored);
}

// Elements of T that one access of 16 bytes takes.
template <class T>
inline constexpr int kVector = 16 / static_cast<int>(sizeof(T));

// N successive elements as they lie in memory.
template <class T, int N>
struct Packed {
  static constexpr int kBytes = N * static_cast<int>(sizeof(T));
  uint32_t words[(kBytes + 3) / 4];
};

// Loads from an address that is a multiple of the bytes loaded, or of 16.
template <int N, class T>
__device__ Packed<T, N> load_packed(const T* from) {
  constexpr int kBytes = Packed<T, N>::kBytes;
  Packed<T, N> to;
  if constexpr (kBytes == 2) {
    to.words[0] = *reinterpret_cast<const uint16_t*>(from);
  } else if constexpr (kBytes == 4) {
    to.words[0] = *reinterpret_cast<const uint32_t*>(from);
  } else if constexpr (kBytes == 8) {
    const uint2 words = *reinterpret_cast<const uint2*>(from);
    to.words[0] = words.x, to.words[1] = words.y;
  } else {
    static_assert(kBytes % 16 == 0, "whole accesses");
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      const uint4 words = reinterpret_cast<const uint4*>(from)[i];
      to.words[4 * i] = words.x, to.words[4 * i + 1] = words.y;
      to.words[4 * i + 2] = words.z, to.words[4 * i + 3] = words.w;
    }
  }
  return to;
}

// Stores to global memory alone. Wide stores are asked for by name: the assignment of a uint4 may be taken
// apart.
template <int N, class T>
__device__ void store_packed(T* to, const Packed<T, N>& from) {
  constexpr int kBytes = Packed<T, N>::kBytes;
  if constexpr (kBytes == 2) {
    *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(from.words[0]);
  } else if constexpr (kBytes == 4) {
    *reinterpret_cast<uint32_t*>(to) = from.words[0];
  } else if constexpr (kBytes == 8) {
    __stwb(reinterpret_cast<uint2*>(to), uint2{from.words[0], from.words[1]});
  } else {
    static_assert(kBytes % 16 == 0, "whole accesses");
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      __stwb(reinterpret_cast<uint4*>(to) + i,
             uint4{from.words[4 * i], from.words[4 * i + 1], from.words[4 * i + 2], from.words[4 * i + 3]});
    }
  }
}

template <int N>
struct Floats {
  float v[N];
};

template <int N>
__device__ Floats<N> unpack(const Packed<float, N>& from) {
  Floats<N> to;
#pragma unroll
  for (int i = 0; i < N; ++i) to.v[i] = __uint_as_float(from.words[i]);
  return to;
}
template <int N>
__device__ Floats<N> unpack(const Packed<Bf16, N>& from) {
  Floats<N> to;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const uint32_t word = from.words[i / 2];
    to.v[i] = __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
  }
  return to;
}
template <int N>
__device__ Floats<N> unpack(const Packed<Half, N>& from) {
  Floats<N> to;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    to.v[i] = half_to_float(static_cast<uint16_t>(from.words[i / 2] >> (i % 2 * 16)));
  }
  return to;
}

template <class T, int N>
__device__ Packed<T, N> pack(const Floats<N>& from) {
  Packed<T, N> to;
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < N; ++i) to.words[i] = __float_as_uint(from.v[i]);
  } else {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const float low = from.v[i], high = i + 1 < N ? from.v[i + 1] : 0.0f;
      if constexpr (std::is_same_v<T, Bf16>) {
        to.words[i / 2] = bf16_pair(low, high);
      } else {
        to.words[i / 2] = float_to_half(low) | static_cast<uint32_t>(float_to_half(high)) << 16;
      }
    }
  }
  return to;
}

template <int N, class T>
__device__ Floats<N> load(const T* from) {
  return unpack(load_packed<N>(from));
}
template <int N, class T>
__device__ void store(T* to, const Floats<N>& from) {
  store_packed(to, pack<T>(from));
}
template <int N>
__device__ void store(double* to, const Floats<N>& from) {
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = from.v[i];
}

// Loads from memory that is BF16 or F32, which all threads agree on: the branch costs less than twice the
// kernels.
template <int N>
__device__ Floats<N> load_either(Type type, const void* from, int64_t i) {
  return type == Type::BF16 ? load<N>(static_cast<const Bf16*>(from) + i)
                            : load<N>(static_cast<const float*>(from) + i);
}

}  // namespace tessera::ops::cuda
