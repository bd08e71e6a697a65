#include "tessera/ops/kernels/gemm.h"

#include <limits>
#include <vector>

#include "tessera/core/error.h"
#include "tessera/ops/kernels/vector_math.h"

// The Fortran interface of the BLAS, column-major; integers are 32 bits wide.
extern "C" {
void sgemm_(const char*, const char*, const int*, const int*, const int*, const float*, const float*,
            const int*, const float*, const int*, const float*, float*, const int*);
void dgemm_(const char*, const char*, const int*, const int*, const int*, const double*, const double*,
            const int*, const double*, const int*, const double*, double*, const int*);
// Functions of MKL alone, absent from builds of LibTorch on another BLAS.
[[gnu::weak]] void gemm_bf16bf16f32_(const char*, const char*, const int*, const int*, const int*,
                                     const float*, const uint16_t*, const int*, const uint16_t*, const int*,
                                     const float*, float*, const int*);
[[gnu::weak]] int MKL_Set_Num_Threads_Local(int);
}

namespace tessera::ops::kernels {
namespace {

int narrow(int64_t size) {
  TESSERA_ASSERT(size >= 0 && size <= std::numeric_limits<int>::max(), "gemm: size beyond the BLAS");
  return static_cast<int>(size);
}

const char* code(Transpose transpose) { return transpose == Transpose::Yes ? "T" : "N"; }

// Calls the BLAS: a row-major product is the column-major product of the operands in the other order.
template <class Blas, class T, class C>
void call(Blas blas, Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k,
          const T* a, int64_t lda, const T* b, int64_t ldb, C beta, C* c, int64_t ldc) {
  const int rows = narrow(m), columns = narrow(n), inner = narrow(k);
  const int row_a = narrow(lda), row_b = narrow(ldb), row_c = narrow(ldc);
  const C one = 1;
  blas(code(transpose_b), code(transpose_a), &columns, &rows, &inner, &one, b, &row_b, a, &row_a, &beta, c,
       &row_c);
}

// Returns a dense copy in float32.
std::vector<float> widened(const Bf16* from, int64_t rows, int64_t columns, int64_t stride) {
  std::vector<float> to(static_cast<size_t>(rows * columns));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < columns; ++i) to[row * columns + i] = load(from[row * stride + i]);
  }
  return to;
}

}  // namespace

void gemm(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k, const float* a,
          int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  call(sgemm_, transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

void gemm(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k, const double* a,
          int64_t lda, const double* b, int64_t ldb, double beta, double* c, int64_t ldc) {
  call(dgemm_, transpose_a, transpose_b, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

void gemm(Transpose transpose_a, Transpose transpose_b, int64_t m, int64_t n, int64_t k, const Bf16* a,
          int64_t lda, const Bf16* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  static_assert(sizeof(Bf16) == sizeof(uint16_t));
  if (gemm_bf16bf16f32_ != nullptr) {
    call(gemm_bf16bf16f32_, transpose_a, transpose_b, m, n, k, reinterpret_cast<const uint16_t*>(a), lda,
         reinterpret_cast<const uint16_t*>(b), ldb, beta, c, ldc);
    return;
  }
  const bool is_a_flipped = transpose_a == Transpose::Yes, is_b_flipped = transpose_b == Transpose::Yes;
  const std::vector<float> wide_a = widened(a, is_a_flipped ? k : m, is_a_flipped ? m : k, lda);
  const std::vector<float> wide_b = widened(b, is_b_flipped ? n : k, is_b_flipped ? k : n, ldb);
  gemm(transpose_a, transpose_b, m, n, k, wide_a.data(), is_a_flipped ? m : k, wide_b.data(),
       is_b_flipped ? k : n, beta, c, ldc);
}

GemmOnThisThread::GemmOnThisThread() {
  if (MKL_Set_Num_Threads_Local != nullptr) before_ = MKL_Set_Num_Threads_Local(1);
}
GemmOnThisThread::~GemmOnThisThread() {
  if (MKL_Set_Num_Threads_Local != nullptr) MKL_Set_Num_Threads_Local(before_);
}

}  // namespace tessera::ops::kernels
