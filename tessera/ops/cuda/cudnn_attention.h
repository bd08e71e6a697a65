// Attention over long documents by cuDNN, which is faster there than flash attention 2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/ops/cuda/attention_graph.h"
#include "tessera/ops/cuda/varlen.h"

namespace tessera::ops::cuda {

// What cuDNN's kernel is made for, and what it is given: documents in the next power of two (those that are
// not there have no tokens) and their longest lengths too, so that few kernels serve many batches.
AttentionShape attention_shape(const at::Tensor& q, const at::Tensor& k, const VarlenCall& call,
                               double scale);

// The numbers of a call that a kernel reads on the device, in one piece of memory.
struct CallNumbers {
  std::vector<int64_t> words;
  // Where each of the five begins in it, at multiples of 16 bytes.
  std::vector<std::pair<AttentionMemory, size_t>> places;
};
CallNumbers call_numbers(const VarlenCall& call, const AttentionShape& shape);

// Attention by one library, on the current stream of its tensors' device and with memory of LibTorch's
// allocator; the host waits for nothing but for a kernel to be made, once for a shape. Thread-safe.
class CudnnAttention {
 public:
  explicit CudnnAttention(const CudnnLibrary& library) : library_(library) {}

  // As VarlenKernel, of bfloat16 and float16. Nothing where cuDNN refuses it, which is warned of once; that
  // shape is not tried again. log_sum is the transpose of a dense [queries, heads].
  std::optional<AttentionResult> attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                        const VarlenCall& call, double scale);
  std::optional<AttentionGradients> differentiate(const at::Tensor& grad_out, const at::Tensor& q,
                                                  const at::Tensor& k, const at::Tensor& v,
                                                  const AttentionResult& result, const VarlenCall& call,
                                                  double scale);

  size_t version() const { return library_.version(); }  // 91900 for 9.19.0

 private:
  using GraphKey =
      std::tuple<int64_t, bool, AttentionShape>;  // the device's index, and whether it is a backward
  using Memory = std::vector<std::pair<int64_t, void*>>;

  CudnnGraph* find_graph(const GraphKey& key, dnn::Handle handle);
  bool run(bool is_backward, const at::Tensor& q, const VarlenCall& call, const AttentionShape& shape,
           Memory memory, const std::vector<AttentionScratch>& scratch);

  const CudnnLibrary library_;
  std::mutex mutex_;
  std::map<int64_t, dnn::Handle> handles_;                  // by device, never destroyed
  std::map<GraphKey, std::unique_ptr<CudnnGraph>> graphs_;  // null: refused
  bool has_warned_ = false;
};

// By the library that LibTorch's CUDA part has loaded; null where that cannot be opened, which the first call
// warns of.
CudnnAttention* cudnn_attention();

}  // namespace tessera::ops::cuda
