// The units of this processor that multiply packed operands (packed.h), and their operations: a table of
// functions for each type of element and each kind of unit. The best one is chosen when the program runs. No
// LibTorch here.
#pragma once

#include <cstdint>

#include "tessera/core/cpu_features.h"
#include "tessera/io/weight_blocks.h"
#include "tessera/ops/kernels/key_band.h"
#include "tessera/ops/kernels/packed.h"

namespace tessera::ops::kernels {

// The running softmax of a panel of queries: the maximum of the scores in powers of two (scaled by scale / ln
// 2), and the sum of the numerators.
struct SoftmaxState {
  float maximum[32], sum[32];
};

// [Note: rows of scores] Attention's blocks of scores lie transposed: a row has the scores of 32 queries with
// one key. So what is found for each query is found for a whole vector of them at once, and the results are
// written as packed operands without being turned. If the band is open for a whole panel of 32 keys by 32
// queries, nothing is masked.

struct CodedMatrix;

// Bytes that are read after a product.
struct Ahead {
  const char* data = nullptr;
  int64_t bytes = 0;
};

// Products in digits have at most so many rows of x, and a run of a row has so many elements and bytes.
inline constexpr int64_t kMostDigitRows = 96, kDigitRun = 32, kDigitRunBytes = 160;

// The operations of one kind of unit, for T = float, Bf16 or F16. Units for F16 have no functions for
// attention, from `softmax` on: these are null.
template <class T>
struct Units {
  Isa isa;
  int64_t block_bytes;  // bytes of a block of a panel, 32 lines by 32 depths

  // These units are worth using for a product [m, n] if m n >= least_meetings (m + n): packing costs m + n
  // lines.
  int64_t least_meetings;
  int64_t least_depth = kTileDepth;  // the least depth of a product for which they are worth using
  // Sizes by which a product is cut (packed_gemm.cpp): the bytes of the operand that a thread packs for
  // itself and meets again and again, those of a group of panels of the other operand, and the depth that is
  // summed before C is written.
  int64_t own_bytes, group_bytes, max_depth;
  // Queries whose backward a thread works on at a time, so that what it holds of them fits in the
  // second-level cache; a multiple of 32, at most 512.
  int64_t backward_queries;

  // Packs `lines` lines of `depth` elements each into panels from `to` on, which is 64-byte aligned; the
  // panels lie `panel_stride` bytes apart.
  void (*pack)(Side side, Lines<T> from, int64_t lines, int64_t depth, void* to, int64_t panel_stride);

  // Computes C = L R + beta C for the whole depth of the panels, which is the same on both sides; C:
  // [left.lines, right.lines], ldc elements between rows. Sums in float32. Each panel on the left is
  // multiplied by `group` panels on the right before the next group begins. A group should fit in the
  // second-level cache, since every panel on the left reads it. C may hold NaN if beta is 0.
  void (*multiply)(const Packed& left, const Packed& right, int64_t group, float beta, float* c, int64_t ldc);
  void (*multiply_narrow)(const Packed& left, const Packed& right, int64_t group, float beta, T* c,
                          int64_t ldc);  // null for T = float
  // Computes C = L R, or C += L R with `adds`, for one panel by one, the first `blocks` blocks of each; C:
  // [32, 32], ldc elements between rows. For many small products whose results stay in the first-level cache.
  void (*multiply_panel)(const char* left, const char* right, int64_t blocks, bool adds, float* c,
                         int64_t ldc);
  // The next six are for layers of few rows (vector_plain.h), whose weights are read as they lie in memory;
  // 0 and null for T other than float. A row's results depend on that row alone, and have the same bits by
  // both products.
  // multiply_few() and its kin are for up to so many rows of x, at most 16; multiply_plain() is for more.
  int64_t most_few_rows;
  // Packs them, [rows, depth], for multiply_few(): `to` has room for [depth, 16].
  void (*pack_few)(const T* x, int64_t stride, int64_t rows, int64_t depth, T* to);
  // Computes y = x W^T + bias for weights, [outs, depth], x of pack_few(), y: [rows, outs], y_stride elements
  // between rows; bias: [outs], or null.
  void (*multiply_few)(const T* weights, int64_t stride, int64_t outs, const T* x, int64_t rows,
                       int64_t depth, const T* bias, T* y, int64_t y_stride);
  void (*multiply_few_bf16)(const Bf16* weights, int64_t stride, int64_t outs, const T* x, int64_t rows,
                            int64_t depth, const T* bias, T* y, int64_t y_stride);
  // Does it for `outs` coded rows, whose codes become floats in registers. Returns false, and computes
  // nothing, for forms of codes that must be expanded first.
  bool (*multiply_few_coded)(const CodedMatrix& weights, int64_t outs, const T* x, int64_t rows,
                             int64_t depth, const T* bias, T* y, int64_t y_stride);
  // The next three are for layers of up to kMostDigitRows rows over weights whose codes are whole numbers,
  // which are multiplied as such by x in fixed point ([Note: digits]); null where the processor has no such
  // products. A row's results depend on that row alone, and are as near to the exact ones as those in floats.
  // Tells whether a form of codes is one of these. A row of x then has a multiple of kDigitRun elements.
  bool (*has_digit_form)(const io::BlockForm& form);
  // Packs rows of x, [rows, depth]: `to` has room for kDigitRunBytes for each run.
  void (*pack_digits)(const T* x, int64_t stride, int64_t rows, int64_t depth, void* to);
  // Does what multiply_few() does for `outs` coded rows and x of pack_digits().
  void (*multiply_digits)(const CodedMatrix& weights, int64_t outs, const void* x, int64_t rows,
                          int64_t depth, const T* bias, T* y, int64_t y_stride);
  // Computes C = (L R)^T + bias for rows on the left, [rows, depth] with left_stride elements between them,
  // and one panel of up to 32 lines on the right; C: [columns, rows], ldc elements between its rows; bias:
  // [rows], or null. Fetches into the second-level cache, bit by bit, what lies ahead.
  void (*multiply_plain)(const T* left, int64_t left_stride, const char* right, int64_t depth, const T* bias,
                         T* c, int64_t ldc, int64_t rows, int64_t columns, const Ahead& ahead);
  // Computes C = sums + beta C for [rows, columns], sum_stride and ldc elements between rows. Null for T =
  // float.
  void (*add_sums)(const float* sums, int64_t sum_stride, float beta, T* c, int64_t ldc, int64_t rows,
                   int64_t columns);

  // One step of the online softmax (Milakov and Gimelshein, 2018) over `key_panels` panels of scores, [32
  // key_panels, 32], of which the queries see what `band` says. Writes numerators = exp(scale * scores -
  // maximum), 0 for keys that are not seen, packed as a panel on the right with the queries for lines and the
  // keys for depth. rescale: [32], the factors for what was summed under the old maximum. factors: of the
  // scores' shape, or null; what is written, but not what is summed, is multiplied by them.
  void (*softmax)(const float* scores, const float* factors, int64_t key_panels, const KeyBand& band,
                  float scale, bool is_first, SoftmaxState& state, float* rescale, void* numerators);
  // Writes factors = 1 / sum and log_sum = the logarithm of the softmax's denominator; 32 each.
  void (*softmax_end)(const SoftmaxState& state, float* factors, float* log_sum);
  // The backward of the softmax for one panel of keys by one of queries: p = exp(scale * scores - log_sum)
  // and g = p * (grad_numerators - delta) * scale; 0 for keys that are not seen. scores, grad_numerators:
  // [32, 32]; log_sum, delta: [32], infinite and 0 for queries that are not there. factors: [32, 32], or
  // null; p, but not g, is multiplied by them. The results are packed as blocks on the left, keys for lines
  // and queries for depth (p, g), and on the right, queries for lines and keys for depth (g).
  void (*softmax_backward)(const float* scores, const float* grad_numerators, const float* factors,
                           const KeyBand& band, float scale, const float* log_sum, const float* delta,
                           void* p_left, void* g_left, void* g_right);
  // Computes x[r, c] *= factors[c] for rows of 32.
  void (*scale_columns)(float* x, const float* factors, int64_t rows);
  // Writes to[c to_stride + r] = x[r, c] * factors[c] for `rows` rows of 32, of which the first `columns`
  // count.
  void (*turn_columns)(const float* x, const float* factors, int64_t rows, int64_t columns, T* to,
                       int64_t to_stride);
  // Computes out[r] = a[r] . b[r]; out has room for `rows` rounded up to a multiple of 16.
  void (*row_dots)(const T* a, int64_t a_stride, const T* b, int64_t b_stride, int64_t rows, int64_t width,
                   float* out);
};

// Returns the best units for T that usable_isa() allows, or null if there are none. For float, in this order:
// tiles, AVX-512, AVX2; for Bf16: tiles, AVX-512 with its extension for bf16, AVX-512, AVX2. The last two
// widen bf16 to float (form Widened); so do AVX-512 and AVX2 for F16 (form WidenedHalf).
template <class T>
const Units<T>* units();

// Sets the calling thread's units up for the functions above that multiply, and gives them free at its end:
// tile units have a configuration. The calling thread must have no other one.
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
