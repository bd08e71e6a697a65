// A graph of operations, and the kernel that cuDNN makes of it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "tessera/ops/cuda/cudnn_library.h"

namespace tessera::ops::cuda {

// The device that a kernel is made for: that of a handle, or one that cuDNN's description of a device (a
// finished descriptor) stands for, which need not be there.
struct CudnnTarget {
  dnn::Handle handle = nullptr;
  dnn::Desc device = nullptr;
};

// A graph is built by naming its operations in their order, and then build(). All tensors have four dims; for
// documents of any lengths these are documents, heads, tokens and head_dim. The result of an operation is
// virtual, so that no memory holds it, unless a tensor of memory is given for it as `y`. Calls throw
// E-INTERNAL-CUDNN with cuDNN's words if it refuses. Not thread-safe.
class CudnnGraph {
 public:
  using Sizes = std::array<int64_t, 4>;
  struct Value {
    dnn::Desc desc;
    dnn::DataType type;
    Sizes sizes, strides;  // in elements
  };
  using Tensor = const Value*;  // valid for the life of the graph
  // Numbers that the graph gives to its own tensors begin here.
  static constexpr int64_t kFirstOwnNumber = 1000;
  // Alignment of all memory, in bytes.
  static constexpr int64_t kAlignment = 16;

  explicit CudnnGraph(const CudnnLibrary& library) : library_(library) {}
  ~CudnnGraph();
  CudnnGraph(const CudnnGraph&) = delete;
  CudnnGraph& operator=(const CudnnGraph&) = delete;

  // Adds memory that run() is given under `number`. offsets: [sizes[0] + 1, 1, 1, 1], the element at which
  // each document begins, which replaces the stride of the first dim.
  Tensor memory(int64_t number, dnn::DataType type, const Sizes& sizes, const Sizes& strides,
                Tensor offsets = nullptr);
  // Adds a number that the kernel is given by value.
  Tensor scalar(float value) { return by_value(dnn::kF32, &value, sizeof value); }
  Tensor scalar(int32_t value) { return by_value(dnn::kI32, &value, sizeof value); }
  // Adds a virtual tensor, dense and row-major.
  Tensor virtual_tensor(dnn::DataType type, const Sizes& sizes);
  // Returns x with its last two dims exchanged, in the same memory.
  Tensor transposed(Tensor x, dnn::DataType type, Tensor offsets = nullptr);

  // Returns y = x mode b, or t ? x : b, computed in `type`; y has x's sizes. Operands repeat along dims of
  // size 1.
  Tensor pointwise(dnn::PointwiseMode mode, dnn::DataType type, Tensor x, Tensor b = nullptr,
                   Tensor t = nullptr, Tensor y = nullptr);
  // Returns each element's place along an axis of x, int32.
  Tensor index(Tensor x, int64_t axis);
  // Returns x reduced over the last dim if y is nullptr, else over the dims of which y has less: heads by
  // groups.
  Tensor reduce(dnn::Reduction how, Tensor x, Tensor y = nullptr);
  // Returns y = a b over the last two dims. Heads of b repeat in groups for a's. rows, columns, depth: how
  // many of each a document has, [documents, 1, 1, 1] int32; null: all.
  Tensor multiply(Tensor a, Tensor b, Tensor rows, Tensor columns, Tensor depth, Tensor y = nullptr);

  // Makes the first kernel that cuDNN proposes and that can be made, which takes tenths of a second.
  void build(const CudnnTarget& target);
  // Returns the bytes of run()'s workspace; valid after build().
  int64_t workspace_bytes() const { return workspace_bytes_; }
  // Enqueues the kernel on the handle's stream. memory: the numbers given to memory(), and their addresses.
  void run(dnn::Handle handle, const std::vector<std::pair<int64_t, void*>>& memory, void* workspace) const;

 private:
  // Creates a descriptor; all are destroyed together in the end.
  dnn::Desc create(dnn::DescType type);
  void finalize(dnn::Desc desc) const;
  template <class T>
  void set(dnn::Desc desc, dnn::Attribute attribute, dnn::ValueType type, const T& value) const;
  void check(dnn::Status status, const char* function) const;

  struct Scalar {
    int64_t number;
    alignas(8) std::array<char, 8> value;
  };
  Tensor by_value(dnn::DataType type, const void* value, size_t bytes);
  Tensor add_tensor(Value value, int64_t number, bool is_virtual, bool is_by_value, Tensor offsets);
  Tensor finish_pointwise(dnn::Desc how, Tensor x, Tensor b, Tensor t, Tensor y);

  const CudnnLibrary library_;
  std::vector<dnn::Desc> descs_, ops_;
  std::deque<Value> values_;
  std::deque<Scalar> scalars_;
  int64_t next_number_ = kFirstOwnNumber;
  dnn::Desc plan_ = nullptr;
  int64_t workspace_bytes_ = 0;
};

}  // namespace tessera::ops::cuda
