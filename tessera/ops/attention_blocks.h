// The arithmetic of attention on a block of queries and keys of one head, in panels (units.h) or by the BLAS.
// attention.cpp decides which blocks are computed, and in which order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include <c10/core/CPUAllocator.h>

#include "tessera/core/round_up.h"
#include "tessera/ops/kernels/attention.h"
#include "tessera/ops/kernels/kernels.h"
#include "tessera/ops/kernels/key_band.h"

namespace tessera::ops {

// Most keys of a block; a multiple of max_queries() of every implementation.
inline constexpr int64_t kBlockKeys = 512;

// Rows and row stride of the buffers in which gradients of keys and values are summed: whole panels of 32 by
// 32.
inline int64_t grad_rows(int64_t count) { return round_up<int64_t>(count, 32); }
inline int64_t grad_stride(int64_t head_dim) { return round_up<int64_t>(head_dim, 32); }

// Rows of one head, `stride` elements apart.
template <class T>
struct HeadRows {
  T* data;
  int64_t stride;
  T* row(int64_t i) const { return data + i * stride; }
  HeadRows from(int64_t i) const { return {row(i), stride}; }
};

// Scratch memory from LibTorch's allocator, which may keep it for the next call.
template <class T>
class Buffer {
 public:
  // Returns memory for `size` elements, not initialised; what it held before may be lost.
  T* of_size(int64_t size) {
    if (size > size_) memory_ = c10::GetCPUAllocator()->allocate(static_cast<size_t>(size) * sizeof(T));
    size_ = std::max(size, size_);
    return static_cast<T*>(memory_.get());
  }

 private:
  c10::DataPtr memory_;
  int64_t size_ = 0;
};

// Scores are scale q k^T or, with a soft cap above 0, soft_cap tanh(scale q k^T / soft_cap).
struct ScoreFormula {
  double scale = 1.0, soft_cap = 0.0;
};

// The forward on blocks, for the use of one thread. Each block of queries has a state of state_size()
// elements, which the caller keeps between the blocks of keys. T = float, double and Bf16.
template <class T>
class ForwardBlocks {
 public:
  using C = kernels::ComputeType<T>;
  virtual ~ForwardBlocks() = default;
  virtual int64_t max_queries() const = 0;
  virtual int64_t state_size() const = 0;
  // Sets the keys and values of the calls that follow, `count` of 1 .. kBlockKeys rows.
  virtual void set_keys(HeadRows<const T> k, HeadRows<const T> v, int64_t count) = 0;
  // Adds the current keys to the attention of `rows` queries, which see those that `band` says, and drops
  // what `dropout` says. With is_first, the state is started anew and need not be set.
  virtual void attend(HeadRows<const T> q, int64_t rows, const kernels::KeyBand& band,
                      const kernels::PairDropout& dropout, bool is_first, C* state) = 0;
  // Writes the attention's result and the logarithms of the softmax's denominators.
  virtual void finish(const C* state, int64_t rows, HeadRows<T> out, HeadRows<C> log_sum) = 0;
};

// A block of queries, with the forward's results for it and the gradient of its output.
template <class T>
struct BackwardQueries {
  HeadRows<const T> q, out, grad_out;
  HeadRows<const kernels::ComputeType<T>> log_sum;
  int64_t rows;
};

// The backward on blocks, used as ForwardBlocks is.
template <class T>
class BackwardBlocks {
 public:
  using C = kernels::ComputeType<T>;
  virtual ~BackwardBlocks() = default;
  virtual int64_t max_queries() const = 0;
  virtual int64_t state_size() const = 0;
  virtual void set_keys(HeadRows<const T> k, HeadRows<const T> v, int64_t count) = 0;
  // Adds the gradients that these queries give to the current keys to grad_k and grad_v, [grad_rows(count),
  // head_dim] with grad_stride(head_dim) elements between rows, and those of the queries to their state.
  // Elements beyond count and head_dim are scratch, but must be set, to zeros say.
  virtual void differentiate(const BackwardQueries<T>& queries, const kernels::KeyBand& band,
                             const kernels::PairDropout& dropout, bool is_first, C* grad_k, C* grad_v,
                             C* state) = 0;
  // Writes the gradient of the queries.
  virtual void finish(const C* state, int64_t rows, HeadRows<T> grad_q) = 0;
};

// Makes the fastest blocks that there are: panels for float and Bf16 if the processor has units for them,
// else the BLAS; floats also use the BLAS if documents of `mean_length` tokens on average fill little of a
// panel of 32. The object holds the calling thread's tile units as long as it lives; this thread alone must
// use and destroy it, and may have no other one.
template <class T>
std::unique_ptr<ForwardBlocks<T>> make_forward_blocks(int64_t head_dim, const ScoreFormula& formula,
                                                      double mean_length);
template <class T>
std::unique_ptr<BackwardBlocks<T>> make_backward_blocks(int64_t head_dim, const ScoreFormula& formula,
                                                        double mean_length);

// The blocks in panels (attention_panels.cpp); null if there are no units for T.
template <class T>
std::unique_ptr<ForwardBlocks<T>> make_forward_panels(int64_t head_dim, const ScoreFormula& formula);
template <class T>
std::unique_ptr<BackwardBlocks<T>> make_backward_panels(int64_t head_dim, const ScoreFormula& formula);

}  // namespace tessera::ops
