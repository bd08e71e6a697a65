// Checks that our declarations of cuBLASLt are those of its header, if this build has found it.
#include "tessera/ops/cuda/lt_library.h"

#include "tests/testing/header_like.h"

#ifdef TESSERA_HAS_HEADER
#include <cublasLt.h>

namespace tessera::ops::cuda {
namespace {

using testing::is, testing::is_like;

constexpr LtLibrary kOurs;
static_assert(is_like(kOurs.version, cublasLtGetVersion));
static_assert(is_like(kOurs.status_text, cublasLtGetStatusString));
static_assert(is_like(kOurs.create, cublasLtCreate));
static_assert(is_like(kOurs.desc_create, cublasLtMatmulDescCreate));
static_assert(is_like(kOurs.desc_destroy, cublasLtMatmulDescDestroy));
static_assert(is_like(kOurs.desc_set, cublasLtMatmulDescSetAttribute));
static_assert(is_like(kOurs.layout_create, cublasLtMatrixLayoutCreate));
static_assert(is_like(kOurs.layout_destroy, cublasLtMatrixLayoutDestroy));
static_assert(is_like(kOurs.preference_create, cublasLtMatmulPreferenceCreate));
static_assert(is_like(kOurs.preference_destroy, cublasLtMatmulPreferenceDestroy));
static_assert(is_like(kOurs.preference_set, cublasLtMatmulPreferenceSetAttribute));
static_assert(is_like(kOurs.find_algorithms, cublasLtMatmulAlgoGetHeuristic));
static_assert(is_like(kOurs.matmul, cublasLtMatmul));

static_assert(is(lt::kSuccess, CUBLAS_STATUS_SUCCESS));
static_assert(is(lt::kInvalidValue, CUBLAS_STATUS_INVALID_VALUE));
static_assert(is(lt::kArchMismatch, CUBLAS_STATUS_ARCH_MISMATCH));
static_assert(is(lt::kNotSupported, CUBLAS_STATUS_NOT_SUPPORTED));
static_assert(is(lt::kF32, CUDA_R_32F));
static_assert(is(lt::kBF16, CUDA_R_16BF));
static_assert(is(lt::kE4M3, CUDA_R_8F_E4M3));
static_assert(is(lt::kCompute32F, CUBLAS_COMPUTE_32F));
static_assert(is(lt::kNotTransposed, CUBLAS_OP_N));
static_assert(is(lt::kTransposed, CUBLAS_OP_T));
static_assert(is(lt::kTransA, CUBLASLT_MATMUL_DESC_TRANSA));
static_assert(is(lt::kTransB, CUBLASLT_MATMUL_DESC_TRANSB));
static_assert(is(lt::kScaleOfA, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER));
static_assert(is(lt::kScaleOfB, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER));
static_assert(is(lt::kFastSums, CUBLASLT_MATMUL_DESC_FAST_ACCUM));
static_assert(is(lt::kWorkspaceBytes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES));
static_assert(is(lt::kReductionSchemes, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK));
static_assert(is(lt::kAlignmentOfA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES));
static_assert(is(lt::kAlignmentOfB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES));
static_assert(is(lt::kAlignmentOfC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES));
static_assert(is(lt::kAlignmentOfD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES));
static_assert(is(lt::kInComputeType, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));

using Theirs = cublasLtMatmulHeuristicResult_t;
static_assert(sizeof(lt::Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(lt::Heuristic) == sizeof(Theirs) && alignof(lt::Heuristic) == alignof(Theirs));
static_assert(offsetof(lt::Heuristic, workspace_bytes) == offsetof(Theirs, workspaceSize));
static_assert(offsetof(lt::Heuristic, status) == offsetof(Theirs, state));
static_assert(offsetof(lt::Heuristic, waves) == offsetof(Theirs, wavesCount));
static_assert(offsetof(lt::Heuristic, reserved) == offsetof(Theirs, reserved));

}  // namespace
}  // namespace tessera::ops::cuda
#endif

static_assert(sizeof(tessera::ops::cuda::lt::Heuristic) == 96);
TESSERA_HEADER_TEST(LtHeader, tessera::testing::skip::kNvcc)
