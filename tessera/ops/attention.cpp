#include "tessera/ops/attention.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/round_up.h"
#include "tessera/core/trace.h"
#include "tessera/ops/attention_blocks.h"
#include "tessera/ops/kernels/attention.h"
#include "tessera/ops/plain.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kName = "document_attention";

// Queries of all heads of a task of the forward pass, which packs the keys for itself.
constexpr int64_t kTaskRows = 768, kMaxTaskHeads = 8;
// Tokens of a document from which on each query head is a task of the backward pass. In shorter ones the
// heads that share their keys are one task, which needs no sum over them in memory.
constexpr int64_t kLongDocument = kBlockKeys + 1;

// The products want dense heads whose rows do not overlap.
at::Tensor dense_heads(const at::Tensor& tensor) {
  const bool has_dense_heads = tensor.size(2) <= 1 || tensor.stride(2) == 1;
  const bool has_rows = tensor.size(0) <= 1 || tensor.stride(0) >= tensor.size(2);
  return has_dense_heads && has_rows ? tensor : tensor.contiguous();
}

// One head of a [tokens, heads, head_dim] tensor from a document's first token on.
template <class T>
HeadRows<T> head_rows(const at::Tensor& tensor, int64_t first_token, int64_t head) {
  T* data = const_cast<T*>(read<std::remove_const_t<T>>(tensor));
  // The stride of a single row is arbitrary.
  return {data + first_token * tensor.stride(0) + head * tensor.stride(1),
          std::max(tensor.stride(0), tensor.size(2))};
}

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

double mean_length(at::IntArrayRef starts) {
  return static_cast<double>(starts.back()) /
         static_cast<double>(std::max<size_t>(1, documents_of(starts).size()));
}

// Runs run(worker, task) for every task; threads take the next one when they are done, in the order of the
// numbers, so costly tasks should come first.
template <class Make, class Run>
void for_each_task(int64_t num_tasks, const Make& make_worker, const Run& run) {
  std::atomic<int64_t> next{0};
  const int64_t num_workers = std::min<int64_t>(at::get_num_threads(), num_tasks);
  at::parallel_for(0, num_workers, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      auto worker = make_worker();
      for (int64_t task = next++; task < num_tasks; task = next++) run(worker, task);
    }
  });
}

struct ForwardTask {
  Document document;
  int64_t first, rows;         // queries of the document
  int64_t kv_head, head, end;  // query heads [head, end)
};

std::vector<ForwardTask> forward_tasks(at::IntArrayRef starts, int64_t kv_heads, int64_t group) {
  const int64_t parts = (group + kMaxTaskHeads - 1) / kMaxTaskHeads, heads = (group + parts - 1) / parts;
  const int64_t rows = round_up<int64_t>(kTaskRows / heads, 64);
  std::vector<ForwardTask> tasks;
  for (const Document& document : documents_of(starts)) {
    for (int64_t first = 0; first < document.length; first += rows) {
      for (int64_t kv_head = 0; kv_head < kv_heads; ++kv_head) {
        for (int64_t head = 0; head < group; head += heads) {
          tasks.push_back({document, first, std::min(rows, document.length - first), kv_head,
                           kv_head * group + head, kv_head * group + std::min(head + heads, group)});
        }
      }
    }
  }
  const auto work = [](const ForwardTask& task) { return task.rows * (2 * task.first + task.rows); };
  std::stable_sort(tasks.begin(), tasks.end(),
                   [&](const ForwardTask& a, const ForwardTask& b) { return work(a) > work(b); });
  return tasks;
}

struct ForwardTensors {
  const at::Tensor &q, &k, &v, &out, &log_sum;
};

template <class T>
struct ForwardWorker {
  std::unique_ptr<ForwardBlocks<T>> blocks;
  Buffer<kernels::ComputeType<T>> states;
};

template <class T>
void attend(ForwardWorker<T>& worker, const ForwardTensors& tensors, const ForwardTask& task) {
  using C = kernels::ComputeType<T>;
  ForwardBlocks<T>& blocks = *worker.blocks;
  const int64_t start = task.document.first, end = task.first + task.rows, size = blocks.max_queries();
  const int64_t per_head = (task.rows + size - 1) / size;
  // Queries that meet a single block of keys need their state for a moment only.
  const bool keeps_states = end > kBlockKeys;
  C* states =
      worker.states.of_size(blocks.state_size() * (keeps_states ? per_head * (task.end - task.head) : 1));
  const auto k = head_rows<const T>(tensors.k, start, task.kv_head),
             v = head_rows<const T>(tensors.v, start, task.kv_head);
  for (int64_t key = 0; key < end; key += kBlockKeys) {
    blocks.set_keys(k.from(key), v.from(key), std::min(kBlockKeys, end - key));
    for (int64_t head = task.head; head < task.end; ++head) {
      const auto q = head_rows<const T>(tensors.q, start, head);
      const auto out = head_rows<T>(tensors.out, start, head);
      const auto log_sum = head_rows<C>(tensors.log_sum, start, head);
      for (int64_t i = 0; i < per_head; ++i) {
        const int64_t first = task.first + i * size, rows = std::min(size, end - first);
        if (first + rows <= key) continue;
        C* state = states + (keeps_states ? (head - task.head) * per_head + i : 0) * blocks.state_size();
        blocks.attend(q.from(first), rows, first - key, key == 0, state);
        if (first + rows <= key + kBlockKeys) {
          blocks.finish(state, rows, out.from(first), log_sum.from(first));
        }
      }
    }
  }
}

// Returns the result and the logarithm of the softmax's denominator, [tokens, heads, 1].
std::pair<at::Tensor, at::Tensor> forward_pass(const at::Tensor& q_in, const at::Tensor& k_in,
                                               const at::Tensor& v_in, at::IntArrayRef starts, double scale) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor q = dense_heads(q_in), k = dense_heads(k_in), v = dense_heads(v_in);
  const int64_t heads = q.size(1), head_dim = q.size(2), kv_heads = k.size(1);
  const at::Tensor out = at::empty(q.sizes(), q.options());
  const at::Tensor log_sum =
      at::empty({q.size(0), heads, 1}, q.options().dtype(compute_type(q.scalar_type())));
  const double length = mean_length(starts);
  const std::vector<ForwardTask> tasks = forward_tasks(starts, kv_heads, heads / kv_heads);
  dispatch(q.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    using C = kernels::ComputeType<T>;
    const ForwardTensors tensors{q, k, v, out, log_sum};
    for_each_task(
        static_cast<int64_t>(tasks.size()),
        [&] {
          return ForwardWorker<T>{make_forward_blocks<T>(head_dim, static_cast<C>(scale), length), {}};
        },
        [&](ForwardWorker<T>& worker, int64_t i) { attend<T>(worker, tensors, tasks[i]); });
  });
  return {out, log_sum};
}

struct BackwardTask {
  Document document;
  int64_t kv_head, head, end;  // query heads [head, end)
};

std::vector<BackwardTask> backward_tasks(at::IntArrayRef starts, int64_t kv_heads, int64_t group) {
  std::vector<Document> documents = documents_of(starts);
  std::stable_sort(documents.begin(), documents.end(),
                   [](const Document& a, const Document& b) { return a.length > b.length; });
  std::vector<BackwardTask> tasks;
  for (const Document& document : documents) {
    const int64_t heads = document.length < kLongDocument ? group : 1;
    for (int64_t head = 0; head < kv_heads * group; head += heads) {
      tasks.push_back({document, head / group, head, head + heads});
    }
  }
  return tasks;
}

struct BackwardTensors {
  const at::Tensor &q, &k, &v, &out, &grad_out, &log_sum, &grad_q, &grad_k, &grad_v;
  // What each query head adds to grad_k and grad_v in long documents: [tokens, heads, head_dim].
  const at::Tensor &k_shares, &v_shares;
};

template <class T>
struct BackwardWorker {
  using C = kernels::ComputeType<T>;
  std::unique_ptr<BackwardBlocks<T>> blocks;
  Buffer<C> states, grad_k, grad_v;
};

template <class T, class To>
void write_rows(const kernels::ComputeType<T>* from, int64_t rows, int64_t width, HeadRows<To> to) {
  for (int64_t row = 0; row < rows; ++row, from += grad_stride(width)) {
    kernels::sum_parts(from, 0, 1, to.row(row), width);
  }
}

template <class T>
void differentiate(BackwardWorker<T>& worker, const BackwardTensors& tensors, const BackwardTask& task) {
  using C = kernels::ComputeType<T>;
  BackwardBlocks<T>& blocks = *worker.blocks;
  const auto [start, length] = task.document;
  const int64_t size = blocks.max_queries(), head_dim = tensors.q.size(2),
                group = tensors.q.size(1) / tensors.k.size(1);
  const auto k = head_rows<const T>(tensors.k, start, task.kv_head),
             v = head_rows<const T>(tensors.v, start, task.kv_head);
  // As in attend().
  const bool keeps_states = length > kBlockKeys;
  TESSERA_ASSERT(!keeps_states || task.end == task.head + 1, "attention: the states are those of one head");
  C* states = worker.states.of_size(blocks.state_size() * (keeps_states ? (length + size - 1) / size : 1));
  const int64_t grad_size = grad_rows(std::min(kBlockKeys, length)) * grad_stride(head_dim);
  C *grad_k = worker.grad_k.of_size(grad_size), *grad_v = worker.grad_v.of_size(grad_size);
  for (int64_t key = 0; key < length; key += kBlockKeys) {
    const int64_t count = std::min(kBlockKeys, length - key);
    blocks.set_keys(k.from(key), v.from(key), count);
    std::fill_n(grad_k, grad_size, C(0));
    std::fill_n(grad_v, grad_size, C(0));
    for (int64_t head = task.head; head < task.end; ++head) {
      const auto q = head_rows<const T>(tensors.q, start, head),
                 out = head_rows<const T>(tensors.out, start, head),
                 grad_out = head_rows<const T>(tensors.grad_out, start, head);
      const auto log_sum = head_rows<const C>(tensors.log_sum, start, head);
      const auto grad_q = head_rows<T>(tensors.grad_q, start, head);
      for (int64_t first = key; first < length; first += size) {
        const int64_t rows = std::min(size, length - first);
        C* state = states + (keeps_states ? first / size : 0) * blocks.state_size();
        blocks.differentiate(
            {q.from(first), out.from(first), grad_out.from(first), log_sum.from(first), rows}, first - key,
            key == 0, grad_k, grad_v, state);
        if (first + rows <= key + kBlockKeys) blocks.finish(state, rows, grad_q.from(first));
      }
    }
    if (task.end - task.head == group) {
      write_rows<T>(grad_k, count, head_dim, head_rows<T>(tensors.grad_k, start + key, task.kv_head));
      write_rows<T>(grad_v, count, head_dim, head_rows<T>(tensors.grad_v, start + key, task.kv_head));
    } else {
      write_rows<T>(grad_k, count, head_dim, head_rows<C>(tensors.k_shares, start + key, task.head));
      write_rows<T>(grad_v, count, head_dim, head_rows<C>(tensors.v_shares, start + key, task.head));
    }
  }
}

// Adds the query heads' shares up: in one order, whatever the threads.
template <class T>
void sum_shares(const at::Tensor& shares, const Document& document, const at::Tensor& to) {
  using C = kernels::ComputeType<T>;
  const int64_t heads = shares.size(1), kv_heads = to.size(1), group = heads / kv_heads,
                head_dim = to.size(2);
  at::parallel_for(0, document.length, rows_per_task(heads * head_dim), [&](int64_t begin, int64_t end) {
    for (int64_t token = document.first + begin; token < document.first + end; ++token) {
      for (int64_t head = 0; head < kv_heads; ++head) {
        kernels::sum_parts(head_rows<const C>(shares, token, head * group).data, head_dim, group,
                           head_rows<T>(to, token, head).data, head_dim);
      }
    }
  });
}

// Gradients of q, k and v.
std::array<at::Tensor, 3> backward_pass(const at::Tensor& grad_in, const at::Tensor& q_in,
                                        const at::Tensor& k_in, const at::Tensor& v_in, const at::Tensor& out,
                                        const at::Tensor& log_sum, at::IntArrayRef starts, double scale) {
  const at::Tensor grad = dense_heads(grad_in), q = dense_heads(q_in), k = dense_heads(k_in),
                   v = dense_heads(v_in);
  const int64_t heads = q.size(1), head_dim = q.size(2), kv_heads = k.size(1), group = heads / kv_heads;
  const at::Tensor grad_q = at::empty(q.sizes(), q.options()), grad_k = at::empty(k.sizes(), k.options()),
                   grad_v = at::empty(v.sizes(), v.options());
  const double length = mean_length(starts);
  const std::vector<BackwardTask> tasks = backward_tasks(starts, kv_heads, group);
  const bool has_shares = group > 1 && !tasks.empty() && tasks[0].document.length >= kLongDocument;
  const auto exact = q.options().dtype(compute_type(q.scalar_type()));
  const at::Tensor k_shares = at::empty({has_shares ? q.size(0) : 0, heads, head_dim}, exact),
                   v_shares = at::empty(k_shares.sizes(), exact);
  dispatch(q.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    using C = kernels::ComputeType<T>;
    const BackwardTensors tensors{q, k, v, out, grad, log_sum, grad_q, grad_k, grad_v, k_shares, v_shares};
    for_each_task(
        static_cast<int64_t>(tasks.size()),
        [&] {
          BackwardWorker<T> worker;
          worker.blocks = make_backward_blocks<T>(head_dim, static_cast<C>(scale), length);
          return worker;
        },
        [&](BackwardWorker<T>& worker, int64_t i) { differentiate<T>(worker, tensors, tasks[i]); });
    if (!has_shares) return;
    for (const Document& document : documents_of(starts)) {
      if (document.length < kLongDocument) continue;
      sum_shares<T>(k_shares, document, grad_k);
      sum_shares<T>(v_shares, document, grad_v);
    }
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
    TESSERA_CHECK_ARGUMENT(operand->dim() == 3 && operand->scalar_type() == q.scalar_type(),
                           "attention: q, k, v must be [tokens, heads, head_dim] of one type");
  }
  TESSERA_CHECK_ARGUMENT(k.sizes() == v.sizes() && q.size(2) == k.size(2), "attention: shapes of q, k, v");
  TESSERA_CHECK_ARGUMENT(k.size(1) > 0 && q.size(1) > 0 && q.size(1) % k.size(1) == 0 && q.size(2) > 0,
                         "attention: heads must be a multiple of kv_heads");
}

}  // namespace

at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::vector<int64_t>& document_starts, double scale) {
  const trace::Scope trace_scope("document_attention");
  check_heads(q, k, v);
  TESSERA_CHECK_ARGUMENT(k.size(0) == q.size(0), "document_attention: q and k have the same tokens");
  TESSERA_CHECK_ARGUMENT(!document_starts.empty() && document_starts.front() == 0 &&
                             document_starts.back() == q.size(0) &&
                             std::is_sorted(document_starts.begin(), document_starts.end()),
                         "document_attention: document_starts must run from 0 to tokens");
  if (!needs_graph({q, k, v})) {
    return PlainOps::are_on() ? plain::document_attention(q, k, v, document_starts, scale)
                              : forward_pass(q, k, v, document_starts, scale).first;
  }
  return AttentionFunction::apply(q, k, v, document_starts, scale);
}

}  // namespace tessera::ops
