// The row operations of blocked attention between its matrix products, each for T = float, double and Bf16
// with C = ComputeType<T>. A block is [rows, width], queries by keys; `band` says which keys row r sees. The
// rows of a block lie `stride` elements apart, a multiple of 16 that is no less than width: the elements
// between them are scratch, as are 16 elements after the last row.
#pragma once

#include "tessera/ops/kernels/kernels.h"
#include "tessera/ops/kernels/key_band.h"

namespace tessera::ops::kernels {

// Says which probabilities of a block dropout sets to zero; see ops::AttentionDropout. The word of a pair is
// pair_word() of its query's draw, of both halves, and of the distance from its key to its query.
struct PairDropout {
  const int64_t* draws = nullptr;  // that of query r is draws[r * stride]; null: there is no dropout
  int64_t stride = 0;
  int64_t ahead = 0;       // position of query 0 minus that of key 0
  uint32_t threshold = 0;  // pairs whose word is below are set to zero
  double factor = 1.0;     // of all others

  // Returns the same for queries counted from `query` and keys counted from `key` on.
  PairDropout from(int64_t query, int64_t key) const {
    PairDropout moved = *this;
    if (draws != nullptr) moved.draws += query * stride;
    moved.ahead += query - key;
    return moved;
  }
};

// A hash of 96 bits: the finalizer "lowbias32" (Wellons, "Prospecting for hash functions", 2018) of the lower
// half and the distance, with the upper half between its rounds.
inline constexpr uint32_t kPairStep = 0x9E3779B9U, kPairFactors[] = {0x7FEB352DU, 0x846CA68BU};
constexpr uint32_t pair_word(uint32_t low, uint32_t high, uint32_t distance) {
  uint32_t x = low + distance * kPairStep;
  x = (x ^ (x >> 16)) * kPairFactors[0] ^ high;
  return (x ^ (x >> 15)) * kPairFactors[1];
}

// Writes what each pair of 32 queries and `keys` keys is multiplied with, [keys, 32]. Only the first
// `queries` queries have a draw.
void dropout_factors(const PairDropout& dropout, int64_t queries, int64_t keys, float* factors);

// attention_softmax: one step of the online softmax (Milakov and Gimelshein, 2018). Writes probabilities =
// exp(scale * scores - maximum), 0 for keys that are not seen, brings row_max and row_sum up to date, and
// sets rescale to the factor for what was summed under the old maximum. probabilities may be scores.
//
// attention_softmax_backward: writes probabilities = p = exp(scale * scores - log_sum) and grad_scores = p *
// (grad_probabilities - delta) * scale, both 0 for keys that are not seen; the two results may lie over the
// two inputs.
//
// soft_cap: scores = cap tanh(scores scale / cap). soft_cap_backward does the same, and replaces
// grad_probabilities by delta + (grad_probabilities - delta) scale (1 - (scores / cap)^2) with the capped
// scores: attention_softmax_backward with a scale of 1 then makes the gradient of the scores as they were.
// delta[r delta_row + i delta_column] belongs to the element i of row r.
//
// drop_pairs: multiplies each element by 0 or the factor, as `dropout` says of its query and key.
//
// row_dots: out[r] = a[r] . b[r]. divide_rows: out[r] = data[r] / divisors[r]. sum_parts: out[i] = the sum
// over p of parts[p * part_stride + i]. scale_rows: data[r] *= factors[r].
#define TESSERA_DECLARE(T, C)                                                                                \
  void attention_softmax(C* scores, int64_t rows, int64_t width, int64_t stride, const KeyBand& band,        \
                         C scale, C* row_max, C* row_sum, C* rescale, T* probabilities);                     \
  void attention_softmax_backward(const C* scores, const C* grad_probabilities, int64_t rows, int64_t width, \
                                  int64_t stride, const KeyBand& band, C scale, const C* log_sum,            \
                                  int64_t log_sum_stride, const C* delta, T* probabilities, T* grad_scores); \
  void drop_pairs(T* block, int64_t rows, int64_t width, int64_t stride, const PairDropout& dropout);        \
  void row_dots(const T* a, int64_t a_stride, const T* b, int64_t b_stride, int64_t rows, int64_t width,     \
                C* out);                                                                                     \
  void divide_rows(const C* data, const C* divisors, T* out, int64_t out_stride, int64_t rows,               \
                   int64_t width);                                                                           \
  void sum_parts(const C* parts, int64_t part_stride, int64_t num_parts, T* out, int64_t width);
TESSERA_DECLARE(float, float)
TESSERA_DECLARE(double, double)
TESSERA_DECLARE(Bf16, float)
#undef TESSERA_DECLARE

#define TESSERA_DECLARE(C)                                                                              \
  void scale_rows(C* data, const C* factors, int64_t rows, int64_t width);                              \
  void soft_cap(C* scores, int64_t rows, int64_t width, int64_t stride, C scale, C cap);                \
  void soft_cap_backward(C* scores, C* grad_probabilities, int64_t rows, int64_t width, int64_t stride, \
                         C scale, C cap, const C* delta, int64_t delta_row, int64_t delta_column);
TESSERA_DECLARE(float)
TESSERA_DECLARE(double)
#undef TESSERA_DECLARE

}  // namespace tessera::ops::kernels
