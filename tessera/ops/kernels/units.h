// The units of this processor that multiply packed operands (packed.h), and what they are told to do: a table
// of functions for each type of element and each kind of unit, of which the best is chosen when the program
// runs. No LibTorch here.
#pragma once

#include <cstdint>

#include "tessera/core/cpu_features.h"
#include "tessera/ops/kernels/key_band.h"
#include "tessera/ops/kernels/packed.h"

namespace tessera::ops::kernels {

// The running softmax of a panel of queries: the maximum, in powers of two, and the sum of the numerators.
struct SoftmaxState {
  float maximum[32], sum[32];
};

// [Note: rows of scores]
// Attention's blocks of scores lie transposed: rows of 32 queries, one for each key. So what is found for
// each query is found for a whole vector of them at once, and the results are written as packed operands
// without being turned. Where the band is open for a whole panel of 32 keys by 32 queries, nothing is masked.

// T: float or Bf16.
template <class T>
struct Units {
  Isa isa;
  int64_t block_bytes;  // of a panel, 32 lines by 32 depths

  // These units take a product [m, n] where m n >= least_meetings (m + n): packing costs m + n lines.
  int64_t least_meetings;
  // How a product is cut (packed_gemm.h): the bytes of the operand that a thread packs for itself and meets
  // again and again, those of a group of panels of the other one, and the depth that is summed before C is
  // written.
  int64_t own_bytes, group_bytes, max_depth;
  // Queries whose backward pass a thread works on at a time, so that what it holds of them fits in the
  // second-level cache; a multiple of 32, at most 512.
  int64_t backward_queries;

  // Packs `lines` lines, `depth` elements each, into panels from `to` on, `panel_stride` bytes apart;
  // 64-byte aligned.
  void (*pack)(Side side, Lines<T> from, int64_t lines, int64_t depth, void* to, int64_t panel_stride);

  // C = L R + beta C for the whole depth of the panels, which is the same on both sides; C: [left.lines,
  // right.lines], ldc elements between rows. Sums in float32. Every panel on the left meets `group` panels on
  // the right before the next ones come: what is met again should fit in the second-level cache. C may hold
  // NaN where beta is 0.
  void (*multiply)(const Packed& left, const Packed& right, int64_t group, float beta, float* c, int64_t ldc);
  void (*multiply_narrow)(const Packed& left, const Packed& right, int64_t group, float beta, Bf16* c,
                          int64_t ldc);  // null for T = float
  // C = L R, or C += L R with `adds`, for one panel by one, the first `blocks` blocks of each; C: [32, 32],
  // ldc elements between rows. For many small products whose results stay in the first-level cache.
  void (*multiply_panel)(const char* left, const char* right, int64_t blocks, bool adds, float* c,
                         int64_t ldc);
  // C = sums + beta C for [rows, columns], sum_stride and ldc elements between rows. Null for T = float.
  void (*add_sums)(const float* sums, int64_t sum_stride, float beta, Bf16* c, int64_t ldc, int64_t rows,
                   int64_t columns);

  // One step of the online softmax (Milakov and Gimelshein, 2018) over `key_panels` panels of scores: [32
  // key_panels, 32], of which the queries see what `band` says. numerators = exp(scale * scores - maximum),
  // packed as a panel on the right with the queries for lines and the keys for depth; 0 where not seen.
  // rescale: [32], the factors for what was summed under the old maximum.
  void (*softmax)(const float* scores, int64_t key_panels, const KeyBand& band, float scale, bool is_first,
                  SoftmaxState& state, float* rescale, void* numerators);
  // factors = 1 / sum, log_sum = the logarithm of the softmax's denominator; 32 each.
  void (*softmax_end)(const SoftmaxState& state, float* factors, float* log_sum);
  // A panel of keys by one of queries: p = exp(scale * scores - log_sum) and g = p * (grad_numerators -
  // delta) * scale; 0 where not seen. scores, grad_numerators: [32, 32]; log_sum, delta: [32], infinite and 0
  // for queries that are not there. Packed as blocks on the left, keys for lines and queries for depth (p,
  // g), and on the right, queries for lines and keys for depth (g).
  void (*softmax_backward)(const float* scores, const float* grad_numerators, const KeyBand& band,
                           float scale, const float* log_sum, const float* delta, void* p_left, void* g_left,
                           void* g_right);
  // x[r, c] *= factors[c] for rows of 32.
  void (*scale_columns)(float* x, const float* factors, int64_t rows);
  // to[c to_stride + r] = x[r, c] * factors[c] for `rows` rows of 32, of which the first `columns` count.
  void (*turn_columns)(const float* x, const float* factors, int64_t rows, int64_t columns, T* to,
                       int64_t to_stride);
  // out[r] = a[r] . b[r]; out has room for a multiple of 16.
  void (*row_dots)(const T* a, int64_t a_stride, const T* b, int64_t b_stride, int64_t rows, int64_t width,
                   float* out);
};

// The best units for T that usable_isa() allows; null where there are none. float: tiles, AVX-512, AVX2.
// Bf16: tiles, AVX-512 with its part for bf16.
template <class T>
const Units<T>* units();

// Sets the calling thread's units up for the functions above that multiply, and gives them free at its end:
// tile units have a configuration.
class UnitSession {
 public:
  explicit UnitSession(Isa isa);
  ~UnitSession();
  UnitSession(const UnitSession&) = delete;
  UnitSession& operator=(const UnitSession&) = delete;

 private:
  bool has_tiles_;
};

}  // namespace tessera::ops::kernels
