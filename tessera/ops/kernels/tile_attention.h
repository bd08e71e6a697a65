// The row operations of attention between its products on tiles (tile_multiply.h). Blocks of scores lie
// transposed: rows of kPanelLines queries, one for each key. So what is found for each query is found for
// sixteen at once, and the results are written as packed operands without being turned. For processors with
// has_tiles(); T is float or Bf16, the type that is packed.
//
// On the diagonal, query i of a panel of 32 sees the keys 0 .. i of a panel; elsewhere it sees all.
#pragma once

#include <cstdint>

#include "tessera/ops/kernels/kernels.h"

namespace tessera::ops::kernels {

// The running softmax of a panel of queries: the maximum, in powers of two, and the sum of the numerators.
struct SoftmaxState {
  float maximum[32], sum[32];
};

// One step of the online softmax (Milakov and Gimelshein, 2018) over `key_panels` panels of scores: [32
// key_panels, 32], of which the last lies on the diagonal, or none. numerators = exp(scale * scores -
// maximum), packed as a panel on the right with the queries for lines and the keys for depth; 0 where not
// seen. rescale: [32], the factors for what was summed under the old maximum.
template <class T>
void tile_softmax(const float* scores, int64_t key_panels, bool has_diagonal, float scale, bool is_first,
                  SoftmaxState& state, float* rescale, void* numerators);

// factors = 1 / sum, log_sum = the logarithm of the softmax's denominator; 32 each.
void tile_softmax_end(const SoftmaxState& state, float* factors, float* log_sum);

// A panel of keys by one of queries: p = exp(scale * scores - log_sum) and g = p * (grad_numerators - delta)
// * scale; 0 where not seen. scores, grad_numerators: [32, 32]; log_sum, delta: [32], infinite and 0 for
// queries that are not there. Packed as blocks on the left, keys for lines and queries for depth (p, g), and
// on the right, queries for lines and keys for depth (g).
template <class T>
void tile_softmax_backward(const float* scores, const float* grad_numerators, bool is_diagonal, float scale,
                           const float* log_sum, const float* delta, void* p_left, void* g_left,
                           void* g_right);

// x[r, c] *= factors[c] for rows of 32.
void scale_columns(float* x, const float* factors, int64_t rows);

// to[c to_stride + r] = x[r, c] * factors[c] for `rows` rows of 32, of which the first `columns` count.
template <class T>
void turn_columns(const float* x, const float* factors, int64_t rows, int64_t columns, T* to,
                  int64_t to_stride);

// out[r] = a[r] . b[r]; out has room for a multiple of 16.
template <class T>
void tile_row_dots(const T* a, int64_t a_stride, const T* b, int64_t b_stride, int64_t rows, int64_t width,
                   float* out);

}  // namespace tessera::ops::kernels
