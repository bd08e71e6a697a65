// Matrix products on plain arrays, through the BLAS that LibTorch carries: for kernels that multiply small
// blocks from several threads at once, where a dispatched at::mm would cost more than the product.
#pragma once

#include <cstdint>

#include "tessera/ops/kernels/kernels.h"

namespace tessera::ops::kernels {

enum class Transpose : bool { No, Yes };

// Computes C = op(A) op(B) + beta C, row-major: op(A) is [m, k], op(B) [k, n], C [m, n]; lda, ldb, ldc are
// the elements between rows as stored. Sums in C's type. Products of bf16 use the processor's bf16 units
// through MKL if it has them (float32 sums), and float32 arithmetic on widened copies if LibTorch was built
// without MKL. C may hold NaN if beta is 0.
void gemm(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k, const float* a,
          int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc);
void gemm(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k, const double* a,
          int64_t lda, const double* b, int64_t ldb, double beta, double* c, int64_t ldc);
void gemm(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k, const Bf16* a,
          int64_t lda, const Bf16* b, int64_t ldb, float beta, float* c, int64_t ldc);

// While one lives, gemm() on this thread divides no product among threads. Inside a parallel region, where
// MKL gets one thread only, LibTorch still lets it plan for all of them, and on some processors the bits
// follow the plan.
class GemmOnThisThread {
 public:
  GemmOnThisThread();
  ~GemmOnThisThread();
  GemmOnThisThread(const GemmOnThisThread&) = delete;
  GemmOnThisThread& operator=(const GemmOnThisThread&) = delete;

 private:
  int before_ = 0;  // number of threads that was set for the thread; 0: none
};

}  // namespace tessera::ops::kernels
