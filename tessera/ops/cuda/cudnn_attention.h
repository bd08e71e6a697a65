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

// Returns the shape that cuDNN's kernel is made for and given: the number of documents is rounded up to the
// next power of two (those that are not there have no tokens), and so are their longest lengths, so that few
// kernels serve many batches.
AttentionShape attention_shape(const at::Tensor& q, const at::Tensor& k, const VarlenCall& call,
                               double scale);

// The numbers that the kernel of a call reads on the device, in one piece of memory.
struct CallNumbers {
  std::vector<int64_t> words;
  // The index in `words` at which each of the five kinds of numbers begins, a multiple of 16 bytes.
  std::vector<std::pair<AttentionMemory, size_t>> places;
};
CallNumbers call_numbers(const VarlenCall& call, const AttentionShape& shape);

// Attention by one library. It runs on the current stream of its tensors' device, with memory of LibTorch's
// allocator; the host waits only while a kernel is made, once for each shape. Thread-safe.
class CudnnAttention {
 public:
  explicit CudnnAttention(const CudnnLibrary& library) : library_(library) {}

  // Compute as VarlenKernel does, for bfloat16 and float16. Return nothing if cuDNN refuses, of which the
  // first time warns; that shape is not tried again. log_sum is the transpose of a dense [queries, heads].
  std::optional<AttentionResult> attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                        const VarlenCall& call, double scale);
  std::optional<AttentionGradients> differentiate(const at::Tensor& grad_out, const at::Tensor& q,
                                                  const at::Tensor& k, const at::Tensor& v,
                                                  const AttentionResult& result, const VarlenCall& call,
                                                  double scale);

  size_t version() const { return library_.version(); }  // 91900 for 9.19.0

 private:
  using GraphKey =
      // The device's index, whether it is a backward, and the shape.
      std::tuple<int64_t, bool, AttentionShape>;
  using Memory = std::vector<std::pair<int64_t, void*>>;

  CudnnGraph* find_graph(const GraphKey& key, dnn::Handle handle);
  bool run(bool is_backward, const at::Tensor& q, const VarlenCall& call, const AttentionShape& shape,
           Memory memory, const std::vector<AttentionScratch>& scratch);

  const CudnnLibrary library_;
  std::mutex mutex_;
  std::map<int64_t, dnn::Handle> handles_;                  // by device index, never destroyed
  std::map<GraphKey, std::unique_ptr<CudnnGraph>> graphs_;  // null: cuDNN has refused it
  bool has_warned_ = false;
};

// Returns attention by the library that LibTorch's CUDA part has loaded; null if that cannot be opened, of
// which the first call warns.
CudnnAttention* cudnn_attention();

}  // namespace tessera::ops::cuda
