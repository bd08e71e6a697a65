// AdamW in one pass over the memory.
#include "tessera/ops/cuda/entries.cuh"
#include "tessera/ops/cuda/launch.cuh"
#include "tessera/ops/cuda/philox.cuh"

namespace tessera::ops::cuda {
namespace {

// The numbers of AdamWFactors in the type of the computation.
struct Factors {
  float gradient_scale, new_mean, beta2, new_square, epsilon, decay, step_size, square_correction;
};

// Returns x as bf16, rounded by the rules of AdamWRounding with these 16 bits.
__device__ Bf16 rounded_by(float x, uint32_t noise) {
  const uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) {
    return {static_cast<uint16_t>((bits >> 16) | ((bits & 0x7fffffu) != 0 ? 0x40u : 0u))};
  }
  return {static_cast<uint16_t>((bits + noise) >> 16)};
}

// Rounds N successive elements and stores them. The number of the first one is a multiple of N, N <= 8, so
// that one call of philox() has the bits of all.
template <int N>
__device__ void store_rounded(Bf16* to, const Floats<N>& x, const RandomKey& key, uint64_t number) {
  const Words words = philox(key, number / 8);
  const int first = static_cast<int>(number % 8);
  // For N = 8, these are all four words; otherwise the part of them that begins with the bits `first`.
  uint32_t from[(N + 1) / 2];
  if constexpr (N == 8) {
#pragma unroll
    for (int i = 0; i < 4; ++i) from[i] = words.w[i];
  } else if constexpr (N == 4) {
    from[0] = first == 0 ? words.w[0] : words.w[2];
    from[1] = first == 0 ? words.w[1] : words.w[3];
  } else {
    static_assert(N == 1, "sizes of groups");
    const uint32_t low =
        first < 4 ? (first < 2 ? words.w[0] : words.w[1]) : (first < 6 ? words.w[2] : words.w[3]);
    from[0] = first % 2 == 0 ? low : low >> 16;
  }
  Packed<Bf16, N> packed = {};
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const uint32_t noise = i % 2 == 0 ? from[i / 2] & 0xffffu : from[i / 2] >> 16;
    packed.words[i / 2] |= static_cast<uint32_t>(rounded_by(x.v[i], noise).bits) << (i % 2 * 16);
  }
  store_packed(to, packed);
}

template <class V, class G, class S>
struct Update {
  V* value;
  const G* gradient;
  S *mean, *square;
  Factors factors;
  const float* device_scale;
  bool is_stochastic, is_one_row;
  AdamWRounding rounding;

  // Returns the number of element i. A single row needs no division.
  __device__ uint64_t number_of(int64_t i) const {
    const auto element = static_cast<uint64_t>(i);
    if (is_one_row) return rounding.first + element;
    const uint64_t row = element / rounding.width;
    return rounding.first + row * rounding.row_stride + (element - row * rounding.width);
  }

  template <int N, class T>
  __device__ void put(T* to, const Floats<N>& x, const RandomKey& key, int64_t i) const {
    if constexpr (std::is_same_v<T, Bf16>) {
      if (is_stochastic) return store_rounded(to + i, x, key, number_of(i));
    }
    store(to + i, x);
  }

  template <int N>
  __device__ void run(int64_t i) const {
    float scale = factors.gradient_scale;
    if (device_scale != nullptr) {
      const float more = *device_scale;
      // NaN: nothing is written.
      if (more != more) return;
      scale *= more;
    }
    const Floats<N> g = load<N>(gradient + i);
    Floats<N> p = load<N>(value + i), m = load<N>(mean + i), v = load<N>(square + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float scaled = g.v[j] * scale;
      m.v[j] = fmaf(factors.new_mean, scaled - m.v[j], m.v[j]);
      v.v[j] = fmaf(factors.beta2, v.v[j], factors.new_square * (scaled * scaled));
      const float root = sqrtf(v.v[j]);
      const float step = factors.step_size * m.v[j] / fmaf(root, factors.square_correction, factors.epsilon);
      p.v[j] = fmaf(factors.decay, p.v[j], -step);
    }
    put(mean, m, rounding.mean, i);
    put(square, v, rounding.square, i);
    put(value, p, rounding.value, i);
  }
};

template <class V, class G, class S>
int32_t run(const AdamWTensors& t, const Factors& factors, const float* device_scale,
            const AdamWRounding* rounding, void* stream) {
  constexpr int N = sizeof(V) + sizeof(G) + sizeof(S) == 6 ? 8 : 4;
  const AdamWRounding how = rounding != nullptr ? *rounding : AdamWRounding{};
  const bool is_one_row = rounding == nullptr || how.width >= static_cast<uint64_t>(t.n);
  const Update<V, G, S> op = {static_cast<V*>(t.value),
                              static_cast<const G*>(t.gradient),
                              static_cast<S*>(t.mean),
                              static_cast<S*>(t.square),
                              factors,
                              device_scale,
                              rounding != nullptr,
                              is_one_row,
                              how};
  // Groups of N elements must lie in one row, and begin with a number that is a multiple of N.
  const bool has_whole_groups =
      how.first % N == 0 && (is_one_row || (how.width % N == 0 && how.row_stride % N == 0));
  return map<N>(op, t.n, has_whole_groups && are_aligned<N>(op.value, op.gradient, op.mean, op.square),
                stream);
}

}  // namespace

int32_t adamw(const AdamWTensors* tensors, const AdamWFactors* factors, const float* device_scale,
              const AdamWRounding* rounding, void* stream) {
  const Factors f = {
      static_cast<float>(factors->gradient_scale), static_cast<float>(1.0 - factors->beta1),
      static_cast<float>(factors->beta2),          static_cast<float>(1.0 - factors->beta2),
      static_cast<float>(factors->epsilon),        static_cast<float>(factors->decay),
      static_cast<float>(factors->step_size),      static_cast<float>(factors->square_correction)};
  return dispatch(tensors->value_type, [&](auto value) {
    return dispatch(tensors->gradient_type, [&](auto gradient) {
      return dispatch(tensors->state_type, [&](auto state) {
        return run<decltype(value), decltype(gradient), decltype(state)>(*tensors, f, device_scale, rounding,
                                                                         stream);
      });
    });
  });
}

}  // namespace tessera::ops::cuda
