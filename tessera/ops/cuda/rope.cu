// Rotary position embedding and its gradient, which is the rotation back.
#include "tessera/ops/cuda/absmax.cuh"
#include "tessera/ops/cuda/entries.cuh"

namespace tessera::ops::cuda {
namespace {

// Item i of map() is N pairs of one head.
template <class T, int N>
struct Rotate {
  static constexpr int kResults = 1;
  const T* x;
  const float *cos, *sin;
  float sign;
  T* y;
  int64_t heads, half;

  template <int, class See>
  __device__ void run(int64_t item, See* seen) const {
    const int64_t in_head = half / N, head = item / in_head, at = (item - head * in_head) * N;
    const int64_t angle = head / heads * half + at, place = head * 2 * half + at;
    const Floats<N> c = load<N>(cos + angle), s = load<N>(sin + angle);
    Floats<N> first = load<N>(x + place), second = load<N>(x + place + half);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float turn = sign * s.v[i], a = first.v[i], b = second.v[i];
      first.v[i] = fmaf(a, c.v[i], -(b * turn));
      second.v[i] = fmaf(b, c.v[i], a * turn);
    }
    store(y + place, first);
    store(y + place + half, second);
    seen[0].add(first);
    seen[0].add(second);
  }
  template <int K>
  __device__ void run(int64_t item) const {
    Unseen none[kResults];
    run<K>(item, none);
  }
};

}  // namespace

int32_t rope(Type type, const void* x, const float* cos, const float* sin, int32_t direction, void* y,
             int64_t tokens, int64_t heads, int64_t half, const ScaleResult* y_scale, void* stream) {
  if (half == 0) return cudaSuccess;
  return dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    constexpr int N = kVector<T>;
    const auto* from = static_cast<const T*>(x);
    auto* to = static_cast<T*>(y);
    const float sign = direction < 0 ? -1.0f : 1.0f;
    if (half % N == 0 && are_aligned<N>(from, to, cos, sin)) {
      return map_with_scales<1, T>(Rotate<T, N>{from, cos, sin, sign, to, heads, half},
                                   tokens * heads * (half / N), true, stream, y_scale);
    }
    return map_with_scales<1, T>(Rotate<T, 1>{from, cos, sin, sign, to, heads, half}, tokens * heads * half,
                                 true, stream, y_scale);
  });
}

}  // namespace tessera::ops::cuda
