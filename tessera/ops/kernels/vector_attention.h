// The row operations of attention between its products (units.h, [Note: rows of scores]), for each kind of
// vector unit. Included by units_*.cpp after vec_*.h; TESSERA_VEC names that header's namespace.
#pragma once

#include "tessera/ops/kernels/vector_pack.h"

namespace tessera::ops::kernels::TESSERA_VEC {

constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;
constexpr int64_t kHalf = 16;  // queries of one of the two Vecs of a panel

// Returns 2^z if `mask` is set and z >= -126 (or NaN), else 0. z is `exponent`, which is at most 0 up to
// rounding; that is taken back by smaller(), as the rounding of large scores is large. The polynomial is the
// best one for 2^r on [-1/2, 1/2] that is 1 at 0: it errs by 9e-8, or by 3e-6 if the result becomes a bf16.
template <class Form>
TESSERA_INLINE Vec power_of_two(Mask mask, Vec exponent) {
  const Vec z = smaller(zero(), exponent);
  const Mask counts = mask & is_not_less(z, all(-126.0f));
  const Vec n = nearest_integer(z), r = sub(z, n);
  Vec p;
  const auto step = [&](float coefficient) { p = multiply_add(p, r, all(coefficient)); };
  if constexpr (!std::is_same_v<Form, Bf16>) {
    p = all(0.00132647273f);
    step(0.00967151299f);
    step(0.0555073358f);
    step(0.240222424f);
    step(0.693147004f);
  } else {
    p = all(0.00958285388f);
    step(0.0559064262f);
    step(0.240240991f);
    step(0.693124175f);
  }
  step(1.0f);
  return kept(counts, times_power(p, n));
}

// Returns log2 of a positive normal number, by the series of the inverse hyperbolic tangent.
inline Vec log2(Vec x) {
  // The series runs over the mantissa m in [1, 2) divided by the root of two, so that it is near 1.
  const Vec root = all(1.41421356f), m = mantissa_of(x);
  const Vec s = div(sub(m, root), add(m, root)), t = mul(s, s);
  Vec p = all(1.0f / 9);
  for (const float c : {1.0f / 7, 1.0f / 5, 1.0f / 3}) p = multiply_add(p, t, all(c));
  p = mul(multiply_add(p, t, all(1.0f)), s);
  return add(add(exponent_of(x), all(0.5f)), mul(p, all(2 * kLog2E)));
}

// Returns a mask of the bits `first` and above.
TESSERA_INLINE uint32_t bits_from(int64_t first) {
  return first > 31 ? 0 : ~uint32_t{0} << std::max<int64_t>(first, 0);
}
// The queries of each half of a panel that see one key, as `key` of the panel and the band say.
struct Sight {
  Mask low = Mask(0xffff), high = Mask(0xffff);
};
template <bool kMasked>
TESSERA_INLINE Sight sees(const KeyBand& band, int64_t key) {
  if constexpr (!kMasked) {
    return {};
  } else {
    const uint32_t queries =
        key < band.keys ? bits_from(key - band.last) & ~bits_from(key - band.first + 1) : 0;
    return {static_cast<Mask>(queries), static_cast<Mask>(queries >> kHalf)};
  }
}

// Returns the first of the two keys whose numbers share a row of a tile on the right; the second is kKeyStep
// further.
template <class Form>
constexpr int64_t first_key(int64_t row) {
  return std::is_same_v<Form, Bf16> ? 2 * row : row;
}
template <class Form>
constexpr int64_t kKeyStep = std::is_same_v<Form, Bf16> ? 1 : 16;

// The numbers of a key and 32 queries in the form in which they are stored.
template <class Form>
struct Numbers {
  typename StoredRow<Form>::type half[2];
  Numbers(Vec low, Vec high) : half{StoredRow<Form>::of(low), StoredRow<Form>::of(high)} {}
};

// Stores the numbers as row `row` of a left tile: the depth is the queries.
template <class Form>
TESSERA_INLINE void store_left(const Numbers<Form>& x, int64_t row, char* tile) {
  store_row(x.half[0], x.half[1], tile + row * 64);
}
template <class Form>
TESSERA_INLINE void store_left_block(const Numbers<Form>& x, int64_t key, char* block) {
  store_left(x, key % kTileLines, block + key / kTileLines * kTileBytes);
}

// Stores the numbers of two keys as row `row` of the two tiles of a right block: the depth is the keys.
template <class Form>
TESSERA_INLINE void store_right(const Numbers<Form>& a, const Numbers<Form>& b, int64_t row, char* block) {
  store_row(a.half[0], b.half[0], block + row * 64);
  store_row(a.half[1], b.half[1], block + kTileBytes + row * 64);
}

// Numbers of the two halves of a panel's queries.
struct Halves {
  Vec low, high;
};

// Writes the numerators of one panel of keys, if kDrops multiplied by the factors, and adds them to `sum`.
template <class Form, bool kMasked, bool kDrops>
void numerators_of_panel(const float* scores, const float* factors, const KeyBand& band, Vec scale,
                         const Halves& shift, Halves& sum, char* block) {
  const auto of_key = [&](int64_t key) __attribute__((always_inline)) {
    const float* row = scores + key * kPanelLines;
    const Sight sight = sees<kMasked>(band, key);
    const Vec low = power_of_two<Form>(sight.low, multiply_sub(load(row), scale, shift.low)),
              high = power_of_two<Form>(sight.high, multiply_sub(load(row + kHalf), scale, shift.high));
    sum.low = add(sum.low, low);
    sum.high = add(sum.high, high);
    if constexpr (kDrops) {
      const float* own = factors + key * kPanelLines;
      return Numbers<Form>(mul(low, load(own)), mul(high, load(own + kHalf)));
    }
    return Numbers<Form>(low, high);
  };
  for (int64_t row = 0; row < kTileLines; ++row) {
    const int64_t key = first_key<Form>(row);
    const Numbers<Form> a = of_key(key), b = of_key(key + kKeyStep<Form>);
    store_right(a, b, row, block);
  }
}

// Raises `top` to the largest scores that each query sees in one panel of keys. larger() returns its second
// operand if one is not a number, so NaN does not raise it.
template <bool kMasked>
void largest_of_panel(const float* scores, const KeyBand& band, Halves& top) {
  for (int64_t key = 0; key < kPanelLines; ++key) {
    const float* row = scores + key * kPanelLines;
    const Vec low = larger(load(row), top.low), high = larger(load(row + kHalf), top.high);
    const Sight sight = sees<kMasked>(band, key);
    top.low = kMasked ? chosen(sight.low, low, top.low) : low;
    top.high = kMasked ? chosen(sight.high, high, top.high) : high;
  }
}

template <class Form, bool kMasked, bool kDrops>
void backward_of_panel(const float* scores, const float* grad_numerators, const float* factors,
                       const KeyBand& band, float scale, const float* log_sum, const float* delta,
                       char* p_left, char* g_left, char* g_right) {
  const Vec factor = all(scale), to_power = all(scale * kLog2E), log2_e = all(kLog2E);
  const Vec shift[2] = {mul(load(log_sum), log2_e), mul(load(log_sum + kHalf), log2_e)};
  const Vec mean[2] = {mul(load(delta), factor), mul(load(delta + kHalf), factor)};
  const auto of_key = [&](int64_t key) __attribute__((always_inline)) {
    Vec p[2], g[2];
    const Sight sight = sees<kMasked>(band, key);
#pragma GCC unroll 2
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t at = key * kPanelLines + half * kHalf;
      const Mask mask = half == 0 ? sight.low : sight.high;
      p[half] = power_of_two<Form>(mask, multiply_sub(load(scores + at), to_power, shift[half]));
      const Vec above = multiply_sub(load(grad_numerators + at), factor, mean[half]);
      g[half] = kMasked ? kept(mask, mul(p[half], above)) : mul(p[half], above);
      if constexpr (kDrops) p[half] = mul(p[half], load(factors + at));
    }
    store_left_block(Numbers<Form>(p[0], p[1]), key, p_left);
    const Numbers<Form> gradient(g[0], g[1]);
    store_left_block(gradient, key, g_left);
    return gradient;
  };
  for (int64_t row = 0; row < kTileLines; ++row) {
    const int64_t key = first_key<Form>(row);
    const Numbers<Form> a = of_key(key), b = of_key(key + kKeyStep<Form>);
    store_right(a, b, row, g_right);
  }
}

template <class Form, bool kDrops>
void add_softmax(const float* scores, const float* factors, int64_t key_panels, const KeyBand& band,
                 float scale, bool is_first, SoftmaxState& state, float* rescale, void* numerators) {
  constexpr int64_t kPanel = kPanelLines * kPanelLines;
  const Vec none = all(-INFINITY), power = all(scale * kLog2E);
  Halves top{none, none};
  for (int64_t i = 0; i < key_panels; ++i) {
    const KeyBand own = band.from(0, i * kPanelLines);
    const auto run = own.is_open(kPanelLines) ? largest_of_panel<false> : largest_of_panel<true>;
    run(scores + i * kPanel, own, top);
  }
  const auto raise = [&](const Vec& largest, float* maximum, float* factors) {
    const Vec before = is_first ? none : load(maximum);
    const Vec after = larger(mul(largest, power), before);
    // If all scores so far are -inf, 0 is subtracted, so that a power gives 0 for -inf.
    const Vec shift = kept(is_not_equal(after, none), after);
    const Mask had = is_not_equal(before, none);
    store(factors, power_of_two<float>(had, sub(before, shift)));
    store(maximum, after);
    return shift;
  };
  const Halves shift{raise(top.low, state.maximum, rescale),
                     raise(top.high, state.maximum + kHalf, rescale + kHalf)};
  Halves sum{zero(), zero()};
  if (!is_first) {
    sum.low = mul(load(state.sum), load(rescale));
    sum.high = mul(load(state.sum + kHalf), load(rescale + kHalf));
  }
  char* block = static_cast<char*>(numerators);
  for (int64_t i = 0; i < key_panels; ++i, block += kBlockBytes<Form>) {
    const KeyBand own = band.from(0, i * kPanelLines);
    const auto run = own.is_open(kPanelLines) ? numerators_of_panel<Form, false, kDrops>
                                              : numerators_of_panel<Form, true, kDrops>;
    run(scores + i * kPanel, kDrops ? factors + i * kPanel : nullptr, own, power, shift, sum, block);
  }
  store(state.sum, sum.low);
  store(state.sum + kHalf, sum.high);
}

template <class Form>
void softmax(const float* scores, const float* factors, int64_t key_panels, const KeyBand& band, float scale,
             bool is_first, SoftmaxState& state, float* rescale, void* numerators) {
  const auto run = factors == nullptr ? add_softmax<Form, false> : add_softmax<Form, true>;
  run(scores, factors, key_panels, band, scale, is_first, state, rescale, numerators);
}

inline void softmax_end(const SoftmaxState& state, float* factors, float* log_sum) {
  for (int64_t i = 0; i < kPanelLines; i += kHalf) {
    const Vec sum = load(state.sum + i);
    store(factors + i, div(all(1.0f), sum));
    store(log_sum + i, mul(add(load(state.maximum + i), log2(sum)), all(kLn2)));
  }
}

template <class Form>
void softmax_backward(const float* scores, const float* grad_numerators, const float* factors,
                      const KeyBand& band, float scale, const float* log_sum, const float* delta,
                      void* p_left, void* g_left, void* g_right) {
  const bool is_open = band.is_open(kPanelLines);
  const auto run = factors == nullptr ? is_open ? backward_of_panel<Form, false, false>
                                                : backward_of_panel<Form, true, false>
                   : is_open ? backward_of_panel<Form, false, true>
                                      : backward_of_panel<Form, true, true>;
  run(scores, grad_numerators, factors, band, scale, log_sum, delta, static_cast<char*>(p_left),
      static_cast<char*>(g_left), static_cast<char*>(g_right));
}

inline void scale_columns(float* x, const float* factors, int64_t rows) {
  const Vec low = load(factors), high = load(factors + kHalf);
  for (int64_t row = 0; row < rows; ++row, x += kPanelLines) {
    store(x, mul(load(x), low));
    store(x + kHalf, mul(load(x + kHalf), high));
  }
}

template <class T>
void turn_columns(const float* x, const float* factors, int64_t rows, int64_t columns, T* to,
                  int64_t to_stride) {
  for (int64_t column = 0; column < columns; column += kHalf) {
    const Vec factor = load(factors + column);
    const int64_t lines = std::min(kHalf, columns - column);
    for (int64_t first = 0; first < rows; first += kHalf) {
      const Mask mask = first_of(rows - first);
      Vec square[16];
      for (int64_t i = 0; i < kHalf; ++i) {
        square[i] = first + i < rows ? mul(load(x + (first + i) * kPanelLines + column), factor) : zero();
      }
      transpose(square);
      for (int64_t i = 0; i < lines; ++i) store(to + (column + i) * to_stride + first, mask, square[i]);
    }
  }
}

template <class T>
void row_dots(const T* a, int64_t a_stride, const T* b, int64_t b_stride, int64_t rows, int64_t width,
              float* out) {
  for (int64_t first = 0; first < rows; first += kHalf) {
    Vec parts[16];
    for (int64_t i = 0; i < kHalf; ++i) {
      Vec sum = zero();
      const int64_t row = first + i;
      for (int64_t at = 0; at < width && row < rows; at += kHalf) {
        const Mask mask = first_of(width - at);
        sum = multiply_add(load(a + row * a_stride + at, mask), load(b + row * b_stride + at, mask), sum);
      }
      parts[i] = sum;
    }
    transpose(parts);
    Vec sums = parts[0];
    for (int64_t i = 1; i < kHalf; ++i) sums = add(sums, parts[i]);
    store(out + first, sums);
  }
}

}  // namespace tessera::ops::kernels::TESSERA_VEC
