// Checks that our declarations of cuDNN are those of its header, if this build has found it.
#include "tessera/ops/cuda/cudnn_library.h"

#include "tests/testing/header_like.h"

#ifdef TESSERA_HAS_HEADER
// The header warns about deprecated names.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <cudnn_graph.h>

namespace tessera::ops::cuda {
namespace {

using testing::is, testing::is_like;

constexpr CudnnLibrary kOurs;
static_assert(is_like(kOurs.version, cudnnGetVersion));
static_assert(is_like(kOurs.status_text, cudnnGetErrorString));
static_assert(is_like(kOurs.last_error, cudnnGetLastErrorString));
static_assert(is_like(kOurs.create, cudnnCreate));
static_assert(is_like(kOurs.set_stream, cudnnSetStream));
static_assert(is_like(kOurs.desc_create, cudnnBackendCreateDescriptor));
static_assert(is_like(kOurs.desc_destroy, cudnnBackendDestroyDescriptor));
static_assert(is_like(kOurs.desc_finalize, cudnnBackendFinalize));
static_assert(is_like(kOurs.desc_set, cudnnBackendSetAttribute));
static_assert(is_like(kOurs.desc_get, cudnnBackendGetAttribute));
static_assert(is_like(kOurs.execute, cudnnBackendExecute));

static_assert(is(dnn::kSuccess, CUDNN_STATUS_SUCCESS));
static_assert(is(dnn::kBadParameter, CUDNN_STATUS_BAD_PARAM));
static_assert(is(dnn::kNotSupported, CUDNN_STATUS_NOT_SUPPORTED));
static_assert(is(dnn::kF32, CUDNN_DATA_FLOAT));
static_assert(is(dnn::kF16, CUDNN_DATA_HALF));
static_assert(is(dnn::kI32, CUDNN_DATA_INT32));
static_assert(is(dnn::kBF16, CUDNN_DATA_BFLOAT16));
static_assert(is(dnn::kI64, CUDNN_DATA_INT64));
static_assert(is(dnn::kBool, CUDNN_DATA_BOOLEAN));
static_assert(is(dnn::kAdd, CUDNN_POINTWISE_ADD));
static_assert(is(dnn::kMultiply, CUDNN_POINTWISE_MUL));
static_assert(is(dnn::kDivide, CUDNN_POINTWISE_DIV));
static_assert(is(dnn::kSubtract, CUDNN_POINTWISE_SUB));
static_assert(is(dnn::kExp, CUDNN_POINTWISE_EXP));
static_assert(is(dnn::kLog, CUDNN_POINTWISE_LOG));
static_assert(is(dnn::kIdentity, CUDNN_POINTWISE_IDENTITY));
static_assert(is(dnn::kGreater, CUDNN_POINTWISE_CMP_GT));
static_assert(is(dnn::kGreaterEqual, CUDNN_POINTWISE_CMP_GE));
static_assert(is(dnn::kLess, CUDNN_POINTWISE_CMP_LT));
static_assert(is(dnn::kAnd, CUDNN_POINTWISE_LOGICAL_AND));
static_assert(is(dnn::kIndex, CUDNN_POINTWISE_GEN_INDEX));
static_assert(is(dnn::kSelect, CUDNN_POINTWISE_BINARY_SELECT));
static_assert(is(dnn::kSum, CUDNN_REDUCE_TENSOR_ADD));
static_assert(is(dnn::kMax, CUDNN_REDUCE_TENSOR_MAX));
static_assert(is(dnn::kBestFirst, CUDNN_HEUR_MODE_A));
static_assert(is(dnn::kPointwise, CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
static_assert(is(dnn::kEngineConfig, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
static_assert(is(dnn::kHeuristic, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
static_assert(is(dnn::kPlan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
static_assert(is(dnn::kPointwiseOp, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR));
static_assert(is(dnn::kGraph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
static_assert(is(dnn::kVariantPack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
static_assert(is(dnn::kTensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR));
static_assert(is(dnn::kMatmul, CUDNN_BACKEND_MATMUL_DESCRIPTOR));
static_assert(is(dnn::kMatmulOp, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR));
static_assert(is(dnn::kReduction, CUDNN_BACKEND_REDUCTION_DESCRIPTOR));
static_assert(is(dnn::kReductionOp, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR));
static_assert(is(dnn::kReshapeOp, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR));
static_assert(is(dnn::kDeviceProperties, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR));
static_assert(is(dnn::kHandleValue, CUDNN_TYPE_HANDLE));
static_assert(is(dnn::kDataTypeValue, CUDNN_TYPE_DATA_TYPE));
static_assert(is(dnn::kBoolValue, CUDNN_TYPE_BOOLEAN));
static_assert(is(dnn::kInt64Value, CUDNN_TYPE_INT64));
static_assert(is(dnn::kPointerValue, CUDNN_TYPE_VOID_PTR));
static_assert(is(dnn::kHeuristicValue, CUDNN_TYPE_HEUR_MODE));
static_assert(is(dnn::kPointwiseValue, CUDNN_TYPE_POINTWISE_MODE));
static_assert(is(dnn::kDescValue, CUDNN_TYPE_BACKEND_DESCRIPTOR));
static_assert(is(dnn::kReductionValue, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE));
static_assert(is(dnn::kCharValue, CUDNN_TYPE_CHAR));
static_assert(is(dnn::kPointwiseModeIs, CUDNN_ATTR_POINTWISE_MODE));
static_assert(is(dnn::kPointwiseType, CUDNN_ATTR_POINTWISE_MATH_PREC));
static_assert(is(dnn::kPointwiseAxis, CUDNN_ATTR_POINTWISE_AXIS));
static_assert(is(dnn::kHeuristicModeIs, CUDNN_ATTR_ENGINEHEUR_MODE));
static_assert(is(dnn::kHeuristicGraph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
static_assert(is(dnn::kHeuristicResults, CUDNN_ATTR_ENGINEHEUR_RESULTS));
static_assert(is(dnn::kHeuristicDevice, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP));
static_assert(is(dnn::kPlanHandle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE));
static_assert(is(dnn::kPlanConfig, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG));
static_assert(is(dnn::kPlanWorkspace, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
static_assert(is(dnn::kPlanDevice, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP));
static_assert(is(dnn::kPointwiseOpOf, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR));
static_assert(is(dnn::kPointwiseX, CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
static_assert(is(dnn::kPointwiseB, CUDNN_ATTR_OPERATION_POINTWISE_BDESC));
static_assert(is(dnn::kPointwiseY, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
static_assert(is(dnn::kPointwiseT, CUDNN_ATTR_OPERATION_POINTWISE_TDESC));
static_assert(is(dnn::kGraphHandle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE));
static_assert(is(dnn::kGraphOps, CUDNN_ATTR_OPERATIONGRAPH_OPS));
static_assert(is(dnn::kTensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT));
static_assert(is(dnn::kTensorType, CUDNN_ATTR_TENSOR_DATA_TYPE));
static_assert(is(dnn::kTensorSizes, CUDNN_ATTR_TENSOR_DIMENSIONS));
static_assert(is(dnn::kTensorStrides, CUDNN_ATTR_TENSOR_STRIDES));
static_assert(is(dnn::kTensorNumber, CUDNN_ATTR_TENSOR_UNIQUE_ID));
static_assert(is(dnn::kTensorIsVirtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL));
static_assert(is(dnn::kTensorIsByValue, CUDNN_ATTR_TENSOR_IS_BY_VALUE));
static_assert(is(dnn::kTensorOffsets, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC));
static_assert(is(dnn::kPackNumbers, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS));
static_assert(is(dnn::kPackPointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS));
static_assert(is(dnn::kPackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE));
static_assert(is(dnn::kMatmulType, CUDNN_ATTR_MATMUL_COMP_TYPE));
static_assert(is(dnn::kMatmulA, CUDNN_ATTR_OPERATION_MATMUL_ADESC));
static_assert(is(dnn::kMatmulB, CUDNN_ATTR_OPERATION_MATMUL_BDESC));
static_assert(is(dnn::kMatmulC, CUDNN_ATTR_OPERATION_MATMUL_CDESC));
static_assert(is(dnn::kMatmulOpOf, CUDNN_ATTR_OPERATION_MATMUL_DESC));
static_assert(is(dnn::kMatmulRows, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC));
static_assert(is(dnn::kMatmulColumns, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC));
static_assert(is(dnn::kMatmulDepth, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC));
static_assert(is(dnn::kReductionIs, CUDNN_ATTR_REDUCTION_OPERATOR));
static_assert(is(dnn::kReductionType, CUDNN_ATTR_REDUCTION_COMP_TYPE));
static_assert(is(dnn::kReductionX, CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
static_assert(is(dnn::kReductionY, CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
static_assert(is(dnn::kReductionOpOf, CUDNN_ATTR_OPERATION_REDUCTION_DESC));
static_assert(is(dnn::kReshapeX, CUDNN_ATTR_OPERATION_RESHAPE_XDESC));
static_assert(is(dnn::kReshapeY, CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
static_assert(is(dnn::kDeviceJson, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION));

}  // namespace
}  // namespace tessera::ops::cuda
#endif

TESSERA_HEADER_TEST(CudnnHeader, tessera::testing::skip::kCudnn)
