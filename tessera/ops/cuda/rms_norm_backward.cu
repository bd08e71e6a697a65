// The gradients of the norm, in two passes for the weight's: sums over pieces of rows, then over the pieces.
#include "tessera/ops/cuda/absmax.cuh"
#include "tessera/ops/cuda/entries.cuh"

namespace tessera::ops::cuda {
namespace {

constexpr int kMaxThreads = 512, kNarrowThreads = 128;
// Four blocks for each of 132 multiprocessors. The number is fixed, as the order of the sums follows from it.
constexpr int64_t kMaxPieces = 528;

template <class T>
struct Arguments {
  const T *grad_y, *x;
  const void* weight;
  Type weight_type;
  const float* inverse_rms;
  const T* grad_residual;
  T* grad_x;
  float* partial;  // [pieces, width], or null
  int64_t rows, width, piece_rows, pieces;
  int lanes;       // threads of a row
  float* largest;  // largest magnitudes of grad_x, if they are looked for
};

// Seen, if a kernel looks for grad_x's largest magnitude, or Unseen.
template <class T, bool kLooks>
using SeeX = std::conditional_t<kLooks, Seen<T>, Unseen>;

// One vector of the numbers that the gradients of a row are made of.
template <class T, int N>
struct Inputs {
  Packed<T, N> grad_y, x, grad_residual;

  __device__ void read(const Arguments<T>& a, int64_t at) {
    grad_y = load_packed<N>(a.grad_y + at);
    x = load_packed<N>(a.x + at);
    if (a.grad_residual != nullptr) grad_residual = load_packed<N>(a.grad_residual + at);
  }
  __device__ float dot(const Floats<N>& weight, float sum) const {
    const Floats<N> dy = unpack(grad_y), v = unpack(x);
#pragma unroll
    for (int i = 0; i < N; ++i) sum = fmaf(dy.v[i] * weight.v[i], v.v[i], sum);
    return sum;
  }
  template <class See>
  __device__ void write(const Arguments<T>& a, const Floats<N>& weight, float inverse, float scale,
                        int64_t at, See& seen) const {
    const Floats<N> dy = unpack(grad_y), v = unpack(x);
    Floats<N> dx;
#pragma unroll
    for (int i = 0; i < N; ++i) dx.v[i] = inverse * fmaf(-v.v[i], scale, dy.v[i] * weight.v[i]);
    if (a.grad_residual != nullptr) {
      const Floats<N> more = unpack(grad_residual);
#pragma unroll
      for (int i = 0; i < N; ++i) dx.v[i] += more.v[i];
    }
    store(a.grad_x + at, dx);
    seen.add(dx);
  }
  __device__ void add_to(Floats<N>& grad_weight, float inverse) const {
    const Floats<N> dy = unpack(grad_y), v = unpack(x);
#pragma unroll
    for (int i = 0; i < N; ++i) grad_weight.v[i] = fmaf(dy.v[i], v.v[i] * inverse, grad_weight.v[i]);
  }
};

template <class T>
__device__ float scale_of(const Arguments<T>& a, float dot, float inverse) {
  return dot * inverse * inverse / static_cast<float>(a.width);
}

// The backward of rows that the registers of their threads hold, kEach vectors a thread. If these are few,
// the weight stays in registers too, and the next row is on its way while one is summed.
template <class T, int kEach, bool kLooks>
__global__ void __launch_bounds__(kMaxThreads, kEach == 1 ? 2 : 1) held_rows_backward(Arguments<T> a) {
  constexpr int N = kVector<T>;
  constexpr bool kHasRoom = kEach <= 2;
  TESSERA_SHARED(float, slots, 2 * kWarp);
  TESSERA_SHARED(float, of_groups, kNarrowThreads* N);
  RowReduce<float> reduce(slots, a.lanes);
  const int lane = static_cast<int>(threadIdx.x) % a.lanes, group = static_cast<int>(threadIdx.x) / a.lanes;
  const int groups = static_cast<int>(blockDim.x) / a.lanes, width = static_cast<int>(a.width);
  const auto column = [&](int i) { return (i * a.lanes + lane) * N; };
  SeeX<T, kLooks> seen;

  for (int64_t piece = blockIdx.x; piece < a.pieces; piece += gridDim.x) {
    const int64_t begin = piece * a.piece_rows;
    const int64_t end = begin + a.piece_rows < a.rows ? begin + a.piece_rows : a.rows;
    Inputs<T, N> now[kEach], next[kEach];
    Floats<N> weight[kEach] = {}, grad_weight[kEach] = {};
    const auto read = [&](int64_t row) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (row < end && column(i) < width) next[i].read(a, row * width + column(i));
      }
    };
    const auto weight_of = [&](int i) {
      return kHasRoom ? weight[i] : load_either<N>(a.weight_type, a.weight, column(i));
    };
    if constexpr (kHasRoom) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (column(i) < width) weight[i] = load_either<N>(a.weight_type, a.weight, column(i));
      }
    }
    if (kHasRoom) read(begin + group);
    for (int64_t first = begin; first < end; first += groups) {
      const int64_t row = first + group;
      const bool is_row = row < end;
      const float inverse = is_row ? a.inverse_rms[row] : 0.0f;
      if (!kHasRoom) read(row);
      float dot = 0.0f;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        now[i] = next[i];
        if (!is_row || column(i) >= width) continue;
        if (a.grad_x != nullptr) dot = now[i].dot(weight_of(i), dot);
        now[i].add_to(grad_weight[i], inverse);
      }
      if (kHasRoom) read(row + groups);
      if (a.grad_x == nullptr) continue;
      const float scale = scale_of(a, reduce.sum(dot), inverse);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (is_row && column(i) < width)
          now[i].write(a, weight_of(i), inverse, scale, row * width + column(i), seen);
      }
    }
    if (a.partial == nullptr) continue;
    float* partial = a.partial + piece * width;
    if (groups == 1) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (column(i) < width) store(partial + column(i), grad_weight[i]);
      }
      continue;
    }
    // Several rows share a block, so they have at most a warp each and kEach is 1: their sums are added in
    // the order of the groups.
#pragma unroll
    for (int i = 0; i < N; ++i) of_groups[static_cast<int>(threadIdx.x) * N + i] = grad_weight[0].v[i];
    __syncthreads();
    for (int c = static_cast<int>(threadIdx.x); c < width; c += static_cast<int>(blockDim.x)) {
      float sum = 0.0f;
      for (int g = 0; g < groups; ++g) sum += of_groups[g * a.lanes * N + c];
      partial[c] = sum;
    }
    __syncthreads();
  }
  if constexpr (kLooks) {
    TESSERA_SHARED(float, of_warps, kWarp);
    seen.write(of_warps, a.largest);
  }
}

// The backward of rows of any width and alignment, a block for each piece.
template <class T, bool kLooks>
__global__ void __launch_bounds__(kMaxThreads) any_rows_backward(Arguments<T> a) {
  SeeX<T, kLooks> seen;
  TESSERA_SHARED(float, slots, 2 * kWarp);
  RowReduce<float> reduce(slots, static_cast<int>(blockDim.x));
  for (int64_t piece = blockIdx.x; piece < a.pieces; piece += gridDim.x) {
    const int64_t begin = piece * a.piece_rows;
    const int64_t end = begin + a.piece_rows < a.rows ? begin + a.piece_rows : a.rows;
    for (int64_t row = begin; row < end; ++row) {
      const float inverse = a.inverse_rms[row];
      float dot = 0.0f;
      Inputs<T, 1> inputs;
      for (int64_t c = threadIdx.x; c < a.width; c += blockDim.x) {
        inputs.read(a, row * a.width + c);
        dot = inputs.dot(load_either<1>(a.weight_type, a.weight, c), dot);
        if (a.partial == nullptr) continue;
        float* partial = a.partial + piece * a.width + c;
        Floats<1> sum = {row == begin ? 0.0f : *partial};
        inputs.add_to(sum, inverse);
        *partial = sum.v[0];
      }
      if (a.grad_x == nullptr) continue;
      const float scale = scale_of(a, reduce.sum(dot), inverse);
      for (int64_t c = threadIdx.x; c < a.width; c += blockDim.x) {
        inputs.read(a, row * a.width + c);
        inputs.write(a, load_either<1>(a.weight_type, a.weight, c), inverse, scale, row * a.width + c, seen);
      }
    }
  }
  if constexpr (kLooks) {
    TESSERA_SHARED(float, of_warps, kWarp);
    seen.write(of_warps, a.largest);
  }
}

constexpr int kColumns = kWarp, kPieceLanes = 8;

// Computes grad_weight[c] = the sum of column c over the pieces: eight sums of every eighth piece, then these
// in order.
template <class W>
__global__ void __launch_bounds__(kColumns* kPieceLanes)
    sum_pieces(const float* partial, W* grad_weight, int64_t pieces, int64_t width) {
  TESSERA_SHARED(float, sums, kPieceLanes* kColumns);
  const int lane = static_cast<int>(threadIdx.x) % kColumns, part = static_cast<int>(threadIdx.x) / kColumns;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kColumns; first < width;
       first += static_cast<int64_t>(gridDim.x) * kColumns) {
    const int64_t column = first + lane;
    float sum = 0.0f;
    if (column < width) {
      for (int64_t piece = part; piece < pieces; piece += kPieceLanes) sum += partial[piece * width + column];
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (part == 0 && column < width) {
      for (int i = 1; i < kPieceLanes; ++i) sum += sums[i * kColumns + lane];
      narrow(sum, grad_weight[column]);
    }
    __syncthreads();
  }
}

int64_t rows_of_piece(int64_t rows) { return rows > kMaxPieces ? divided_up(rows, kMaxPieces) : 1; }
int64_t pieces_of(int64_t rows) { return divided_up(rows, rows_of_piece(rows)); }

template <class T, bool kLooks>
int32_t start(Arguments<T> a, const ScaleResult* x_scale, void* stream) {
  constexpr int N = kVector<T>;
  const auto run = [&](auto kernel, int threads) {
    return kLooks ? launch_looking({x_scale}, kernel, a.pieces, threads, stream, a)
                  : launch(kernel, a.pieces, threads, stream, a);
  };
  const bool is_aligned_all = a.width % N == 0 && are_aligned<N>(a.grad_y, a.x, a.grad_residual, a.grad_x) &&
                              is_aligned(a.weight) && is_aligned(a.partial);
  const int64_t vectors = a.width / N;
  if (!is_aligned_all || vectors > 4 * kMaxThreads) {
    return run(any_rows_backward<T, kLooks>, block_threads(a.width, 4, kMaxThreads));
  }
  const int64_t each = vectors <= kMaxThreads ? 1 : vectors <= 2 * kMaxThreads ? 2 : 4;
  a.lanes = row_lanes(vectors, each, kMaxThreads);
  const int threads = a.lanes <= kWarp ? kNarrowThreads : a.lanes;
  return run(each == 1   ? held_rows_backward<T, 1, kLooks>
             : each == 2 ? held_rows_backward<T, 2, kLooks>
                         : held_rows_backward<T, 4, kLooks>,
             threads);
}

}  // namespace

int64_t rms_norm_backward_workspace(int64_t rows, int64_t width) {
  return pieces_of(rows) * width * static_cast<int64_t>(sizeof(float));
}

int32_t rms_norm_backward(Type type, Type weight_type, const void* grad_y, const void* x, const void* weight,
                          const float* inverse_rms, const void* grad_residual, void* grad_x,
                          void* grad_weight, int64_t rows, int64_t width, void* workspace,
                          const ScaleResult* x_scale, void* stream) {
  if (width == 0 || (grad_x == nullptr && grad_weight == nullptr)) return cudaSuccess;
  float* partial = grad_weight == nullptr ? nullptr : static_cast<float*>(workspace);
  const int32_t error = dispatch_weighted(type, weight_type, [&](auto tag) -> int32_t {
    using T = decltype(tag);
    const Arguments<T> a = {static_cast<const T*>(grad_y),
                            static_cast<const T*>(x),
                            weight,
                            weight_type,
                            inverse_rms,
                            static_cast<const T*>(grad_residual),
                            static_cast<T*>(grad_x),
                            partial,
                            rows,
                            width,
                            rows_of_piece(rows),
                            pieces_of(rows),
                            0,
                            largest_of(x_scale)};
    if (x_scale == nullptr || grad_x == nullptr) return start<T, false>(a, nullptr, stream);
    if constexpr (std::is_same_v<T, Bf16>) return start<T, true>(a, x_scale, stream);
    return cudaErrorInvalidValue;
  });
  if (error != cudaSuccess || grad_weight == nullptr) return error;
  return dispatch(weight_type, [&](auto tag) {
    using W = decltype(tag);
    return launch(sum_pieces<W>, divided_up(width, kColumns), kColumns * kPieceLanes, stream, partial,
                  static_cast<W*>(grad_weight), pieces_of(rows), width);
  });
}

}  // namespace tessera::ops::cuda
