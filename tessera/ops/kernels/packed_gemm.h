// Matrix products by packed operands (packed.h) on the units that units.h finds.
//
// Tile units multiply bf16 operands as they are, and float operands in three bf16 parts each, by the six
// products of parts that float32 can hold: the error is that of a float32 product, at more than twice the
// speed of the vector units. The method is that of G. Henry, P. T. P. Tang, A. Heinecke, "Leveraging the
// bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations", ARITH 2019. A float that is
// infinite or at least 3.396e38 gives NaN there.
#pragma once

#include <cstdint>

#include "tessera/ops/kernels/coded_matrix.h"
#include "tessera/ops/kernels/units.h"

namespace tessera::ops::kernels {

// The factors of a product L R, summed over `depth` elements; L's lines are its rows, R's its columns.
template <class T>
struct Factors {
  Lines<T> left, right;
  int64_t depth = 0;
  // If set, R is this matrix or its transpose, and `right` says only which: its depth is contiguous if R's
  // lines are the matrix's rows. Codes are expanded on their way into the panels. Not for F16.
  const CodedMatrix* coded_right = nullptr;
};

// Computes C = L R + L' R' + beta C for C, [m, n] with ldc elements between rows; sums are in float32. The
// second product (`more`) is for a few more elements of depth that lie elsewhere, or for none; m, n and the
// first depth are positive. Uses the threads of OpenMP, or inside a parallel region the calling one alone;
// the order of the sums does not depend on them. C may hold NaN if beta is 0. Scratch memory for packed
// operands and sums, up to 45 MB and 1 MB for each thread, stays with the calling thread.
void packed_gemm(const Units<float>& units, int64_t m, int64_t n, const Factors<float>& product,
                 const Factors<float>& more, float beta, float* c, int64_t ldc);
void packed_gemm(const Units<Bf16>& units, int64_t m, int64_t n, const Factors<Bf16>& product,
                 const Factors<Bf16>& more, float beta, float* c, int64_t ldc);
void packed_gemm(const Units<Bf16>& units, int64_t m, int64_t n, const Factors<Bf16>& product,
                 const Factors<Bf16>& more, float beta, Bf16* c, int64_t ldc);
void packed_gemm(const Units<F16>& units, int64_t m, int64_t n, const Factors<F16>& product,
                 const Factors<F16>& more, float beta, float* c, int64_t ldc);
void packed_gemm(const Units<F16>& units, int64_t m, int64_t n, const Factors<F16>& product,
                 const Factors<F16>& more, float beta, F16* c, int64_t ldc);

}  // namespace tessera::ops::kernels
