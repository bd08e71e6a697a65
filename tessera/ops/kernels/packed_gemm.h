// Matrix products by packed operands (packed.h) on the units that units.h finds.
//
// Tile units multiply bf16 operands as they are, and float operands in three bf16 parts each, by the six
// products of parts that float32 can hold: the error is that of a float32 product, at more than twice the
// speed of the vector units. After G. Henry, P. T. P. Tang, A. Heinecke, "Leveraging the bfloat16 Artificial
// Intelligence Datatype For Higher-Precision Computations", ARITH 2019. There an infinite float, or one from
// 3.396e38 on, gives NaN.
#pragma once

#include <cstdint>

#include "tessera/ops/kernels/units.h"

namespace tessera::ops::kernels {

// L R, sums over `depth` elements; L's lines are its rows, R's its columns.
template <class T>
struct Factors {
  Lines<T> left, right;
  int64_t depth = 0;
};

// C = L R + L' R' + beta C for C: [m, n] with ldc elements between rows, sums in float32. The second product
// is for a few more elements of depth, kept elsewhere, or of none; m, n and the first depth are positive.
// Takes the threads of OpenMP, or the calling one alone inside a parallel region; the order of the sums does
// not depend on them. C may hold NaN where beta is 0. Packed operands and sums of up to 45 MB, and 1 MB for
// each thread, stay with the calling thread.
void packed_gemm(const Units<float>& units, int64_t m, int64_t n, const Factors<float>& product,
                 const Factors<float>& more, float beta, float* c, int64_t ldc);
void packed_gemm(const Units<Bf16>& units, int64_t m, int64_t n, const Factors<Bf16>& product,
                 const Factors<Bf16>& more, float beta, float* c, int64_t ldc);
void packed_gemm(const Units<Bf16>& units, int64_t m, int64_t n, const Factors<Bf16>& product,
                 const Factors<Bf16>& more, float beta, Bf16* c, int64_t ldc);

}  // namespace tessera::ops::kernels
