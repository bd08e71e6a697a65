// The nonlinearity of an MLP, gated or not.
#include "tessera/ops/cuda/absmax.cuh"
#include "tessera/ops/cuda/entries.cuh"

namespace tessera::ops::cuda {
namespace {

// The value f(z) and the derivative f'(z).
struct Value {
  float f, slope;
};

// Returns 1 + exp(-x), the reciprocal of the logistic function, with the exponential kept between e^-87 and
// e^87; NaN for NaN.
__device__ float logistic_divisor(float x) {
  const float z = x < -87.0f ? -87.0f : (x > 87.0f ? 87.0f : x);
  return 1.0f + expf(-z);
}

struct Silu {
  __device__ float operator()(float z) const { return __fdividef(z, logistic_divisor(z)); }
  __device__ Value differentiate(float z) const {
    const float s = __fdividef(1.0f, logistic_divisor(z)), silu = z * s;
    return {silu, fmaf(silu, 1.0f - s, s)};
  }
};

struct Gelu {
  static constexpr float kRootHalf = 0.70710678f, kDensity = 0.39894228f;  // sqrt(1 / 2), 1 / sqrt(2 pi)
  __device__ float operator()(float z) const { return z * (0.5f * (1.0f + erff(z * kRootHalf))); }
  __device__ Value differentiate(float z) const {
    const float below = 0.5f * (1.0f + erff(z * kRootHalf));
    return {z * below, fmaf(z, kDensity * expf(-0.5f * z * z), below)};
  }
};

// The function z / (1 + exp(-2 u)), u = sqrt(2 / pi) (z + 0.044715 z^3).
struct GeluTanh {
  static constexpr float kLinear = 1.5957691f, kCubic = 0.07135481f;  // coefficients of 2 u
  // Beyond 30 the result is z, or 0, and cubes would overflow.
  __device__ static float near_zero(float z) { return z < -30.0f ? -30.0f : (z > 30.0f ? 30.0f : z); }
  __device__ static float twice_u(float z) { return z * fmaf(kCubic * z, z, kLinear); }
  __device__ float operator()(float z) const {
    return __fdividef(z, logistic_divisor(twice_u(near_zero(z))));
  }
  __device__ Value differentiate(float z) const {
    const float near = near_zero(z), s = __fdividef(1.0f, logistic_divisor(twice_u(near)));
    const float slope = fmaf(3.0f * kCubic * near, near, kLinear);
    return {z * s, fmaf(near * s * (1.0f - s), slope, s)};
  }
};

template <class T, class F>
struct Forward {
  static constexpr int kResults = 1;
  const T *gate, *up;
  T* y;

  template <int N, class See>
  __device__ void run(int64_t i, See* seen) const {
    Floats<N> z = load<N>(gate + i);
    if (up == nullptr) {
#pragma unroll
      for (int j = 0; j < N; ++j) z.v[j] = F()(z.v[j]);
    } else {
      const Floats<N> factor = load<N>(up + i);
#pragma unroll
      for (int j = 0; j < N; ++j) z.v[j] = round_through<T>(F()(z.v[j])) * factor.v[j];
    }
    store(y + i, z);
    seen[0].add(z);
  }
  template <int N>
  __device__ void run(int64_t i) const {
    Unseen none[kResults];
    run<N>(i, none);
  }
};

template <class T, class F>
struct Backward {
  static constexpr int kResults = 2;
  const T *grad_y, *gate, *up;
  T *grad_gate, *grad_up;

  template <int N, class See>
  __device__ void run(int64_t i, See* seen) const {
    Floats<N> dy = load<N>(grad_y + i), factor, of_gate, of_up;
    const Floats<N> z = load<N>(gate + i);
    if (up != nullptr) factor = load<N>(up + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const Value value = F().differentiate(z.v[j]);
      of_gate.v[j] = (up == nullptr ? dy.v[j] : dy.v[j] * factor.v[j]) * value.slope;
      of_up.v[j] = dy.v[j] * value.f;
    }
    if (grad_gate != nullptr) store(grad_gate + i, of_gate);
    if (grad_up != nullptr) store(grad_up + i, of_up);
    seen[0].add(of_gate);
    seen[1].add(of_up);
  }
  template <int N>
  __device__ void run(int64_t i) const {
    Unseen none[kResults];
    run<N>(i, none);
  }
};

// Calls run(T(), F()) for the element type T and the function F.
template <class Run>
int32_t dispatch_activation(Type type, Activate f, const Run& run) {
  return dispatch(type, [&](auto tag) -> int32_t {
    switch (f) {
      case Activate::Silu: return run(tag, Silu());
      case Activate::Gelu: return run(tag, Gelu());
      case Activate::GeluTanh: return run(tag, GeluTanh());
    }
    return cudaErrorInvalidValue;
  });
}

}  // namespace

int32_t activate(Type type, Activate f, const void* gate, const void* up, void* y, int64_t n,
                 const ScaleResult* y_scale, void* stream) {
  return dispatch_activation(type, f, [&](auto tag, auto function) {
    using T = decltype(tag);
    const Forward<T, decltype(function)> op = {static_cast<const T*>(gate), static_cast<const T*>(up),
                                               static_cast<T*>(y)};
    constexpr int N = kVector<T>;
    return map_with_scales<N, T>(op, n, are_aligned<N>(op.gate, op.up, op.y), stream, y_scale);
  });
}

int32_t activate_backward(Type type, Activate f, const void* grad_y, const void* gate, const void* up,
                          void* grad_gate, void* grad_up, int64_t n, const ScaleResult* gate_scale,
                          const ScaleResult* up_scale, void* stream) {
  if (grad_gate == nullptr && grad_up == nullptr) return cudaSuccess;
  return dispatch_activation(type, f, [&](auto tag, auto function) {
    using T = decltype(tag);
    const Backward<T, decltype(function)> op = {static_cast<const T*>(grad_y), static_cast<const T*>(gate),
                                                static_cast<const T*>(up), static_cast<T*>(grad_gate),
                                                static_cast<T*>(grad_up)};
    constexpr int N = kVector<T>;
    const bool aligned = are_aligned<N>(op.grad_y, op.gate, op.up, op.grad_gate, op.grad_up);
    return map_with_scales<N, T>(op, n, aligned, stream, grad_gate == nullptr ? nullptr : gate_scale,
                                 grad_up == nullptr ? nullptr : up_scale);
  });
}

}  // namespace tessera::ops::cuda
