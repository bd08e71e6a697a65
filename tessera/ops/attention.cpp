#include "tessera/ops/attention.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/round_up.h"
#include "tessera/core/trace.h"
#include "tessera/ops/kernels/attention.h"
#include "tessera/ops/kernels/gemm.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kName = "document_attention";

// Queries and keys of a block: its scores fit in the second-level cache beside what they are multiplied with.
constexpr int64_t kQueries = 64, kKeys = 512;

// The products want dense heads whose rows do not overlap.
at::Tensor dense_heads(const at::Tensor& tensor) {
  const bool has_dense_heads = tensor.size(2) <= 1 || tensor.stride(2) == 1;
  const bool has_rows = tensor.size(0) <= 1 || tensor.stride(0) >= tensor.size(2);
  return has_dense_heads && has_rows ? tensor : tensor.contiguous();
}

// One head of a [tokens, heads, head_dim] tensor from a document's first token on: rows `stride` apart.
template <class T>
struct HeadRows {
  T* data;
  int64_t stride;
  HeadRows(const at::Tensor& tensor, int64_t first_token, int64_t head)
      : data(const_cast<T*>(read<T>(tensor)) + first_token * tensor.stride(0) + head * tensor.stride(1)),
        // Of a single row it is arbitrary.
        stride(std::max(tensor.stride(0), tensor.size(2))) {}
  T* row(int64_t i) const { return data + i * stride; }
};

struct Document {
  int64_t first, length;  // tokens
};

std::vector<Document> documents_of(at::IntArrayRef starts) {
  std::vector<Document> documents;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    if (starts[i + 1] > starts[i]) documents.push_back({starts[i], starts[i + 1] - starts[i]});
  }
  return documents;
}

// Runs run(scratch, task) for every task; threads take the next one when they are done, in the order of the
// numbers, so costly tasks should come first.
template <class Scratch, class Run>
void for_each_task(int64_t num_tasks, const Run& run) {
  std::atomic<int64_t> next{0};
  const int64_t num_workers = std::min<int64_t>(at::get_num_threads(), num_tasks);
  at::parallel_for(0, num_workers, 1, [&](int64_t begin, int64_t end) {
    for (int64_t worker = begin; worker < end; ++worker) {
      Scratch scratch;
      for (int64_t task = next++; task < num_tasks; task = next++) run(scratch, task);
    }
  });
}

// Scratch memory from LibTorch's allocator, which may keep it for the next call.
template <class T>
class Buffer {
 public:
  // Not initialised; what was there before is lost.
  T* of_size(int64_t size) {
    if (size > size_) memory_ = c10::GetCPUAllocator()->allocate(static_cast<size_t>(size) * sizeof(T));
    size_ = std::max(size, size_);
    return static_cast<T*>(memory_.get());
  }

 private:
  c10::DataPtr memory_;
  int64_t size_ = 0;
};

// Where T computes in itself, what is made of the scores lies over them.
template <class T, class C>
T* over(C* block, Buffer<T>& own, int64_t size) {
  if constexpr (std::is_same_v<T, C>) {
    return block;
  } else {
    return own.of_size(size);
  }
}

// Rows of a block start on whole vectors.
int64_t block_stride(int64_t width) { return round_up<int64_t>(width, 16); }

template <class T>
struct ForwardScratch {
  using C = kernels::ComputeType<T>;
  Buffer<C> scores, sum;
  Buffer<T> probabilities;
  std::array<C, kQueries> row_max, row_sum, rescale;
};

// Attention of the queries [first, first + rows) of a document and head.
template <class T, class C = kernels::ComputeType<T>>
void attend(ForwardScratch<T>& scratch, HeadRows<T> q, HeadRows<T> k, HeadRows<T> v, HeadRows<T> out,
            C* log_sum, int64_t log_sum_stride, int64_t first, int64_t rows, int64_t head_dim, C scale) {
  using kernels::Transpose;
  const int64_t visible = first + rows;
  const int64_t stride = block_stride(std::min(visible, kKeys));
  C* scores = scratch.scores.of_size(rows * stride);
  T* probabilities = over<T>(scores, scratch.probabilities, rows * stride);
  C* sum = scratch.sum.of_size(rows * head_dim);
  scratch.row_max.fill(-std::numeric_limits<C>::infinity());
  scratch.row_sum.fill(0);
  for (int64_t key = 0; key < visible; key += kKeys) {
    const int64_t width = std::min(kKeys, visible - key);
    kernels::gemm(Transpose::No, Transpose::Yes, rows, width, head_dim, q.row(first), q.stride, k.row(key),
                  k.stride, C(0), scores, stride);
    kernels::attention_softmax(scores, rows, width, stride, first - key + 1, scale, scratch.row_max.data(),
                               scratch.row_sum.data(), scratch.rescale.data(), probabilities);
    if (key > 0) kernels::scale_rows(sum, scratch.rescale.data(), rows, head_dim);
    kernels::gemm(Transpose::No, Transpose::No, rows, head_dim, width, probabilities, stride, v.row(key),
                  v.stride, C(key > 0 ? 1 : 0), sum, head_dim);
  }
  kernels::divide_rows(sum, scratch.row_sum.data(), out.row(first), out.stride, rows, head_dim);
  for (int64_t row = 0; row < rows; ++row) {
    log_sum[(first + row) * log_sum_stride] = scratch.row_max[row] + std::log(scratch.row_sum[row]);
  }
}

// Returns the result and the logarithm of the softmax's denominator, [tokens, heads].
std::pair<at::Tensor, at::Tensor> forward_pass(const at::Tensor& q_in, const at::Tensor& k_in,
                                               const at::Tensor& v_in, at::IntArrayRef starts, double scale) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor q = dense_heads(q_in), k = dense_heads(k_in), v = dense_heads(v_in);
  const int64_t heads = q.size(1), head_dim = q.size(2), group = heads / k.size(1);
  at::Tensor out = at::empty(q.sizes(), q.options());
  at::Tensor log_sum = at::empty({q.size(0), heads}, q.options().dtype(compute_type(q.scalar_type())));
  struct Task {
    Document document;
    int64_t first, head;
  };
  std::vector<Task> tasks;
  for (const Document& document : documents_of(starts)) {
    for (int64_t first = 0; first < document.length; first += kQueries) {
      for (int64_t head = 0; head < heads; ++head) tasks.push_back({document, first, head});
    }
  }
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const Task& a, const Task& b) { return a.first > b.first; });
  dispatch(q.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    using C = kernels::ComputeType<T>;
    for_each_task<ForwardScratch<T>>(static_cast<int64_t>(tasks.size()), [&](ForwardScratch<T>& scratch,
                                                                             int64_t i) {
      const auto& [document, first, head] = tasks[i];
      attend<T>(scratch, HeadRows<T>(q, document.first, head), HeadRows<T>(k, document.first, head / group),
                HeadRows<T>(v, document.first, head / group), HeadRows<T>(out, document.first, head),
                write<C>(log_sum) + document.first * heads + head, heads, first,
                std::min(kQueries, document.length - first), head_dim, static_cast<C>(scale));
    });
  });
  return {out, log_sum};
}

template <class T>
struct BackwardScratch {
  using C = kernels::ComputeType<T>;
  Buffer<C> scores, grad_scores, grad_q;
  Buffer<T> narrow_scores, narrow_grad_scores;
  std::array<C, kQueries> delta;
};

template <class T>
struct BackwardHead {
  HeadRows<T> q, k, v, out, grad_out, grad_q;
  const kernels::ComputeType<T>* log_sum;
  int64_t log_sum_stride;
};

// Gradients of a document and query head. grad_k and grad_v, [length, head_dim], get this head's share.
template <class T, class C = kernels::ComputeType<T>>
void differentiate(BackwardScratch<T>& scratch, const BackwardHead<T>& head, C* grad_k, C* grad_v,
                   int64_t length, int64_t head_dim, C scale) {
  using kernels::Transpose;
  const int64_t stride = block_stride(std::min(kKeys, length));
  const int64_t block = std::min(kQueries, length) * stride;
  C* scores = scratch.scores.of_size(block);
  C* grad_scores = scratch.grad_scores.of_size(block);
  T* probabilities = over<T>(scores, scratch.narrow_scores, block);
  T* grad_logits = over<T>(grad_scores, scratch.narrow_grad_scores, block);
  C* grad_q = scratch.grad_q.of_size(kQueries * head_dim);
  std::fill_n(grad_k, length * head_dim, C(0));
  std::fill_n(grad_v, length * head_dim, C(0));
  for (int64_t first = 0; first < length; first += kQueries) {
    const int64_t rows = std::min(kQueries, length - first), visible = first + rows;
    kernels::row_dots(head.out.row(first), head.out.stride, head.grad_out.row(first), head.grad_out.stride,
                      rows, head_dim, scratch.delta.data());
    for (int64_t key = 0; key < visible; key += kKeys) {
      const int64_t width = std::min(kKeys, visible - key);
      kernels::gemm(Transpose::No, Transpose::Yes, rows, width, head_dim, head.q.row(first), head.q.stride,
                    head.k.row(key), head.k.stride, C(0), scores, stride);
      kernels::gemm(Transpose::No, Transpose::Yes, rows, width, head_dim, head.grad_out.row(first),
                    head.grad_out.stride, head.v.row(key), head.v.stride, C(0), grad_scores, stride);
      kernels::attention_softmax_backward(scores, grad_scores, rows, width, stride, first - key + 1, scale,
                                          head.log_sum + first * head.log_sum_stride, head.log_sum_stride,
                                          scratch.delta.data(), probabilities, grad_logits);
      kernels::gemm(Transpose::Yes, Transpose::No, width, head_dim, rows, probabilities, stride,
                    head.grad_out.row(first), head.grad_out.stride, C(1), grad_v + key * head_dim, head_dim);
      kernels::gemm(Transpose::Yes, Transpose::No, width, head_dim, rows, grad_logits, stride,
                    head.q.row(first), head.q.stride, C(1), grad_k + key * head_dim, head_dim);
      kernels::gemm(Transpose::No, Transpose::No, rows, head_dim, width, grad_logits, stride, head.k.row(key),
                    head.k.stride, C(key > 0 ? 1 : 0), grad_q, head_dim);
    }
    for (int64_t row = 0; row < rows; ++row) {
      kernels::sum_parts(grad_q + row * head_dim, 0, 1, head.grad_q.row(first + row), head_dim);
    }
  }
}

// Gradients of q, k and v.
std::array<at::Tensor, 3> backward_pass(const at::Tensor& grad_in, const at::Tensor& q_in,
                                        const at::Tensor& k_in, const at::Tensor& v_in, const at::Tensor& out,
                                        const at::Tensor& log_sum, at::IntArrayRef starts, double scale) {
  const at::Tensor grad = dense_heads(grad_in), q = dense_heads(q_in), k = dense_heads(k_in),
                   v = dense_heads(v_in);
  const int64_t tokens = q.size(0), heads = q.size(1), head_dim = q.size(2), kv_heads = k.size(1),
                group = heads / kv_heads;
  const auto exact = q.options().dtype(compute_type(q.scalar_type()));
  const at::Tensor grad_q = at::empty(q.sizes(), q.options()), grad_k = at::empty(k.sizes(), k.options()),
                   grad_v = at::empty(v.sizes(), v.options());
  // The shares of the query heads, added up at the end: the sum does not depend on the threads.
  const at::Tensor k_shares = at::empty({heads, tokens, head_dim}, exact),
                   v_shares = at::empty({heads, tokens, head_dim}, exact);
  std::vector<Document> documents = documents_of(starts);
  std::stable_sort(documents.begin(), documents.end(),
                   [](const Document& a, const Document& b) { return a.length > b.length; });
  dispatch(q.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    using C = kernels::ComputeType<T>;
    for_each_task<BackwardScratch<T>>(
        static_cast<int64_t>(documents.size()) * heads, [&](BackwardScratch<T>& scratch, int64_t task) {
          const auto [first, length] = documents[task / heads];
          const int64_t head = task % heads;
          const BackwardHead<T> rows{HeadRows<T>(q, first, head),
                                     HeadRows<T>(k, first, head / group),
                                     HeadRows<T>(v, first, head / group),
                                     HeadRows<T>(out, first, head),
                                     HeadRows<T>(grad, first, head),
                                     HeadRows<T>(grad_q, first, head),
                                     read<C>(log_sum) + first * heads + head,
                                     heads};
          const int64_t share = (head * tokens + first) * head_dim;
          differentiate<T>(scratch, rows, write<C>(k_shares) + share, write<C>(v_shares) + share, length,
                           head_dim, static_cast<C>(scale));
        });
    const int64_t stride = tokens * head_dim;
    at::parallel_for(0, tokens, rows_per_task(heads * head_dim), [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) {
        for (int64_t head = 0; head < kv_heads; ++head) {
          const int64_t from = (head * group * tokens + token) * head_dim,
                        to = (token * kv_heads + head) * head_dim;
          kernels::sum_parts(read<C>(k_shares) + from, stride, group, write<T>(grad_k) + to, head_dim);
          kernels::sum_parts(read<C>(v_shares) + from, stride, group, write<T>(grad_v) + to, head_dim);
        }
      }
    });
  });
  return {grad_q, grad_k, grad_v};
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::vector<int64_t>& starts, double scale) {
    auto [out, log_sum] = forward_pass(q, k, v, starts, scale);
    ctx->save_for_backward({q, k, v, out, log_sum});
    ctx->saved_data["starts"] = starts;
    ctx->saved_data["scale"] = scale;
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward(kName);
    const auto saved = ctx->get_saved_variables();
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto result = backward_pass(grads[0], saved[0], saved[1], saved[2], saved[3], saved[4],
                                ctx->saved_data["starts"].toIntVector(), ctx->saved_data["scale"].toDouble());
    for (size_t i = 0; i < result.size(); ++i) {
      if (!ctx->needs_input_grad(i)) result[i].reset();
    }
    return {result[0], result[1], result[2], {}, {}};
  }
};

void check_heads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  for (const at::Tensor* operand : {&q, &k, &v}) {
    check_operand(*operand, kName);
    TESSERA_ASSERT(operand->dim() == 3 && operand->scalar_type() == q.scalar_type(),
                   "attention: q, k, v must be [tokens, heads, head_dim] of one type");
  }
  TESSERA_ASSERT(k.sizes() == v.sizes() && q.size(2) == k.size(2), "attention: shapes of q, k, v");
  TESSERA_ASSERT(k.size(1) > 0 && q.size(1) > 0 && q.size(1) % k.size(1) == 0 && q.size(2) > 0,
                 "attention: heads must be a multiple of kv_heads");
}

}  // namespace

at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::vector<int64_t>& document_starts, double scale) {
  const trace::Scope trace_scope("document_attention");
  check_heads(q, k, v);
  TESSERA_ASSERT(k.size(0) == q.size(0), "document_attention: q and k have the same tokens");
  TESSERA_ASSERT(!document_starts.empty() && document_starts.front() == 0 &&
                     document_starts.back() == q.size(0) &&
                     std::is_sorted(document_starts.begin(), document_starts.end()),
                 "document_attention: document_starts must run from 0 to tokens");
  if (!needs_graph({q, k, v})) return forward_pass(q, k, v, document_starts, scale).first;
  return AttentionFunction::apply(q, k, v, document_starts, scale);
}

}  // namespace tessera::ops
