// The table of the library, its one exported symbol.
#include "tessera/ops/cuda/entries.cuh"
#include "tessera/ops/cuda/launch.cuh"

namespace tessera::ops::cuda {
namespace {

const char* error_text(int32_t error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

const CudaKernels kTable = {
    kCudaKernelsVersion,
    static_cast<int32_t>(sizeof(CudaKernels)),
    error_text,
    rms_norm,
    rms_norm_scale,
    rms_norm_backward,
    rms_norm_backward_workspace,
    activate,
    activate_backward,
    rope,
    cross_entropy,
    cross_entropy_sums,
    cross_entropy_finish,
    adamw,
    sum_of_squares,
    sum_of_squares_workspace,
    sum,
    cast,
    e4m3_scale,
    e4m3_scale_workspace,
    to_e4m3,
    to_e4m3_transposed,
    dropout_mask,
    uniform_noise,
    dequantize_ggml,
    dequantize_nf4,
};

}  // namespace
}  // namespace tessera::ops::cuda

extern "C" __attribute__((visibility("default"))) const tessera::ops::cuda::CudaKernels*
tessera_cuda_kernels() {
  return &tessera::ops::cuda::kTable;
}
