// Casts to e4m3 with one scale, of a matrix as it lies and transposed: a product on fp8 units reads both
// operands along its depth.
#include "tessera/ops/cuda/absmax.cuh"
#include "tessera/ops/cuda/entries.cuh"

namespace tessera::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kPiece = int64_t{1} << 16;
constexpr float kMax = 448.0f, kLeastAbsmax = 1e-12f;

// Returns the codes of two numbers, the first in the low half.
__device__ uint32_t e4m3_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
#else
  const auto rounded = [](float x) -> uint32_t {
    const uint32_t bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
    if (magnitude > 0x7f800000u) return 0x7fu;
    if (magnitude >= __float_as_uint(kMax)) return sign | 0x7eu;
    // Numbers below 2^-6 are 2^-9 apart, as float32 is from 2^14 on: the addition rounds.
    constexpr float kDenormal = 16384.0f;
    if (magnitude < 121u << 23) {
      return sign | (__float_as_uint(__uint_as_float(magnitude) + kDenormal) - __float_as_uint(kDenormal));
    }
    return sign | (magnitude + 0x7ffffu + (magnitude >> 20 & 1u) - (120u << 23)) >> 20;
  };
  return rounded(low) | rounded(high) << 8;
#endif
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    absmax_pieces(const T* x, int64_t n, int64_t pieces, float* largest) {
  TESSERA_SHARED(float, slots, 2 * kWarp);
  RowReduce<float> reduce(slots, kThreads);
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const int64_t begin = piece * kPiece, end = begin + kPiece < n ? begin + kPiece : n;
    const int64_t whole = begin + (end - begin) / N * N;
    float found = 0.0f;
    for (int64_t i = begin + static_cast<int64_t>(threadIdx.x) * N; i < whole; i += kThreads * N) {
      const Floats<N> values = load<N>(x + i);
#pragma unroll
      for (int k = 0; k < N; ++k) found = Largest()(fabsf(values.v[k]), found);
    }
    for (int64_t i = whole + threadIdx.x; i < end; i += kThreads)
      found = Largest()(fabsf(widen(x[i])), found);
    found = reduce(found, 0.0f, Largest());
    if (threadIdx.x == 0) largest[piece] = found;
  }
}

__global__ void __launch_bounds__(kThreads) scale_of(const float* largest, int64_t pieces, float* scale) {
  TESSERA_SHARED(float, slots, 2 * kWarp);
  RowReduce<float> reduce(slots, kThreads);
  float found = kLeastAbsmax;
  for (int64_t i = threadIdx.x; i < pieces; i += kThreads) found = Largest()(largest[i], found);
  found = reduce(found, 0.0f, Largest());
  if (threadIdx.x == 0) *scale = found * static_cast<float>(1.0 / 448.0);
}

// Makes the elements i of the codes, [rows, stride], of which those from `width` on are zero.
template <class T>
struct ToE4m3 {
  const T* x;
  const float* scale;
  uint8_t* codes;
  int64_t width, stride;

  template <int N>
  __device__ void run(int64_t i) const {
    const float factor = 1.0f / *scale;
    Floats<N> values;
    if (width == stride) {
      values = load<N>(x + i);
    } else {
      // N divides the stride.
      const int64_t row = i / stride, column = i % stride;
#pragma unroll
      for (int k = 0; k < N; ++k)
        values.v[k] = column + k < width ? widen(x[row * width + column + k]) : 0.0f;
    }
    if constexpr (N == 1) {
      codes[i] = static_cast<uint8_t>(e4m3_pair(values.v[0] * factor, 0.0f));
    } else {
      Packed<uint8_t, N> packed;
#pragma unroll
      for (int k = 0; k < N; k += 4) {
        packed.words[k / 4] = e4m3_pair(values.v[k] * factor, values.v[k + 1] * factor) |
                              e4m3_pair(values.v[k + 2] * factor, values.v[k + 3] * factor) << 16;
      }
      store_packed(codes + i, packed);
    }
  }
};

// A tile of x is kSide x kSide. In shared memory a row is a column of x, and one word longer than its codes,
// so that neighbours lie in other banks.
constexpr int kSide = 64, kWords = kSide / 4 + 1;

// Casts x transposed, tile by tile. N: elements of a row of x that are loaded at once; divides the width.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    transposed_tiles(const T* x, const float* scale, uint8_t* codes, int64_t rows, int64_t width,
                     int64_t stride, int64_t tiles_across, int64_t tiles) {
  TESSERA_SHARED(uint32_t, words, kSide * kWords);
  auto* const bytes = reinterpret_cast<uint8_t*>(words);
  const float factor = 1.0f / *scale;
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t first_row = tile / tiles_across * kSide, first_column = tile % tiles_across * kSide;
    for (int place = thread * N; place < kSide * kSide; place += kThreads * N) {
      const int row = place / kSide, column = place % kSide;
      Floats<N> values = {};
      if (first_row + row < rows && first_column + column < width) {
        values = load<N>(x + (first_row + row) * width + first_column + column);
      }
#pragma unroll
      for (int k = 0; k < N; ++k) {
        bytes[(column + k) * kWords * 4 + row] = static_cast<uint8_t>(e4m3_pair(values.v[k] * factor, 0.0f));
      }
    }
    __syncthreads();
    for (int place = thread * 16; place < kSide * kSide; place += kThreads * 16) {
      const int column = place / kSide, row = place % kSide;
      if (first_column + column < width && first_row + row < stride) {
        Packed<uint8_t, 16> packed;
#pragma unroll
        for (int k = 0; k < 4; ++k) packed.words[k] = words[column * kWords + row / 4 + k];
        store_packed(codes + (first_column + column) * stride + first_row + row, packed);
      }
    }
    __syncthreads();
  }
}

int64_t pieces_of(int64_t n) { return divided_up(n, kPiece); }

}  // namespace

int32_t make_scale(const float* largest, int64_t pieces, float* scale, void* stream) {
  return launch(scale_of, 1, kThreads, stream, largest, pieces, scale);
}

int64_t e4m3_scale_workspace(int64_t n) { return pieces_of(n) * static_cast<int64_t>(sizeof(float)); }

int32_t e4m3_scale(Type type, const void* x, int64_t n, float* scale, void* workspace, void* stream) {
  auto* largest = static_cast<float*>(workspace);
  const int64_t pieces = pieces_of(n);
  const int32_t error = dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    const auto* from = static_cast<const T*>(x);
    constexpr int N = kVector<T>;
    return is_aligned(x) ? launch(absmax_pieces<T, N>, pieces, kThreads, stream, from, n, pieces, largest)
                         : launch(absmax_pieces<T, 1>, pieces, kThreads, stream, from, n, pieces, largest);
  });
  return error != cudaSuccess ? error : make_scale(largest, pieces, scale, stream);
}

int32_t to_e4m3(Type type, const void* x, const float* scale, void* codes, int64_t rows, int64_t width,
                int64_t stride, void* stream) {
  return dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    const ToE4m3<T> op = {static_cast<const T*>(x), scale, static_cast<uint8_t*>(codes), width, stride};
    return map<16>(op, rows * stride, width != stride || is_aligned(x), stream);
  });
}

int32_t to_e4m3_transposed(Type type, const void* x, const float* scale, void* codes, int64_t rows,
                           int64_t width, int64_t stride, void* stream) {
  return dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    const auto* from = static_cast<const T*>(x);
    auto* to = static_cast<uint8_t*>(codes);
    const int64_t across = divided_up(width, kSide), tiles = across * divided_up(stride, kSide);
    constexpr int N = kVector<T>;
    return width % N == 0 && is_aligned(x) ? launch(transposed_tiles<T, N>, tiles, kThreads, stream, from,
                                                    scale, to, rows, width, stride, across, tiles)
                                           : launch(transposed_tiles<T, 1>, tiles, kThreads, stream, from,
                                                    scale, to, rows, width, stride, across, tiles);
  });
}

}  // namespace tessera::ops::cuda
