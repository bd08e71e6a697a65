#include "tessera/ops/attention.h"

#include <algorithm>
#include <atomic>
#include <limits>
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
#include "tessera/ops/attention_tasks.h"
#include "tessera/ops/host.h"
#include "tessera/ops/kernels/attention.h"
#include "tessera/ops/kernels/gemm.h"
#include "tessera/ops/saved_activation.h"
#include "tessera/ops/seen_spans.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [Note: tasks of attention] The host's kernels attend in tasks, which threads take from a common list, the
// costliest first. A forward task is a run of queries of one span, for some query heads that share a key
// head. It goes through the keys in blocks of kBlockKeys; for each block it packs keys and values once
// (set_keys()) and meets all its queries with them, head by head. A block of queries keeps its unfinished
// softmax as a state between the blocks of keys.
//
// A backward task also goes through blocks of keys, and within each through the queries that see it: the
// gradients of the keys are then whole at the end of a block, and those of the queries are the states. The
// query heads that share a key head all add to its gradient. In short spans one task has all of these heads,
// one after the other. In long spans each head is a task of its own, so that there are tasks enough for the
// threads; it writes its shares apart, and sum_shares() adds these up.
//
// Tasks do not race: spans share neither queries nor keys, and two tasks of a span differ in queries, heads
// or both in all rows that they write. Every sum has one order that no thread decides, so results do not
// depend on their number.

constexpr const char* kName = "document_attention";

// Returns the tensor with dense heads whose rows do not overlap, as the products need it.
at::Tensor dense_heads(const at::Tensor& tensor) {
  const bool has_dense_heads = tensor.size(2) <= 1 || tensor.stride(2) == 1;
  const bool has_rows = tensor.size(0) <= 1 || tensor.stride(0) >= tensor.size(2);
  return has_dense_heads && has_rows ? tensor : tensor.contiguous();
}

// Tells whether the spans' queries (or keys, which `count` chooses) are all of the tokens.
bool is_all(const std::vector<SeenSpan>& spans, int64_t SeenSpan::*count, int64_t tokens) {
  int64_t sum = 0;
  for (const SeenSpan& span : spans) sum += span.*count;
  return sum == tokens;
}

double mean_queries(const std::vector<SeenSpan>& spans) {
  double sum = 0;
  for (const SeenSpan& span : spans) sum += static_cast<double>(span.queries);
  return sum / static_cast<double>(std::max<size_t>(1, spans.size()));
}

// Returns memory for results of `sizes`, [tokens, ...]: uninitialised if every token gets a result, else 0.
at::Tensor results(at::IntArrayRef sizes, const at::TensorOptions& options, bool all_are_set) {
  return all_are_set ? at::empty(sizes, options) : at::zeros(sizes, options);
}

// Tells whether the span's keys fill more than a block. Each query head is then a task of the backward;
// otherwise the heads that share their keys are one task, which needs no sum over them in memory.
bool is_long(const SeenSpan& span) { return span.keys > kBlockKeys; }

struct BackwardTask {
  SeenSpan span;
  int64_t kv_head, head, end;  // query heads [head, end)
};

std::vector<BackwardTask> backward_tasks(std::vector<SeenSpan> spans, int64_t kv_heads, int64_t group) {
  std::stable_sort(spans.begin(), spans.end(),
                   [](const SeenSpan& a, const SeenSpan& b) { return a.queries > b.queries; });
  std::vector<BackwardTask> tasks;
  for (const SeenSpan& span : spans) {
    const int64_t heads = is_long(span) ? 1 : group;
    for (int64_t head = 0; head < kv_heads * group; head += heads) {
      tasks.push_back({span, head / group, head, head + heads});
    }
  }
  return tasks;
}

struct BackwardTensors {
  const at::Tensor &q, &k, &v, &out, &grad_out, &log_sum, &grad_q, &grad_k, &grad_v;
  // The shares that each query head adds to grad_k and grad_v in long spans: [tokens of k, heads, head_dim].
  const at::Tensor &k_shares, &v_shares;
  const AttentionDropout& dropout;
};

template <class T>
struct BackwardWorker {
  using C = kernels::ComputeType<T>;
  std::unique_ptr<BackwardBlocks<T>> blocks;
  Buffer<C> states, grad_k, grad_v;
};

// Writes rows of summed gradients, grad_stride(width) apart, in To's type. The sum over one part only changes
// the type.
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
  const SeenSpan& span = task.span;
  const int64_t size = blocks.max_queries(), head_dim = tensors.q.size(2),
                group = tensors.q.size(1) / tensors.k.size(1);
  const auto k = head_rows<const T>(tensors.k, span.first_key, task.kv_head),
             v = head_rows<const T>(tensors.v, span.first_key, task.kv_head);
  // States are kept if there are several blocks of keys, as in attend().
  const bool keeps_states = is_long(span);
  TESSERA_ASSERT(!keeps_states || task.end == task.head + 1, "attention: the states are those of one head");
  C* states =
      worker.states.of_size(blocks.state_size() * (keeps_states ? (span.queries + size - 1) / size : 1));
  const int64_t grad_size = grad_rows(std::min(kBlockKeys, span.keys)) * grad_stride(head_dim);
  C *grad_k = worker.grad_k.of_size(grad_size), *grad_v = worker.grad_v.of_size(grad_size);
  for (int64_t key = 0; key < span.keys; key += kBlockKeys) {
    const int64_t count = std::min(kBlockKeys, span.keys - key);
    const kernels::IndexRange seeing = span.band.from(0, key).of_first(count).queries_that_see(span.queries);
    blocks.set_keys(k.from(key), v.from(key), count);
    std::fill_n(grad_k, grad_size, C(0));
    std::fill_n(grad_v, grad_size, C(0));
    for (int64_t head = task.head; head < task.end; ++head) {
      const auto q = head_rows<const T>(tensors.q, span.first_query, head),
                 out = head_rows<const T>(tensors.out, span.first_query, head),
                 grad_out = head_rows<const T>(tensors.grad_out, span.first_query, head);
      const auto log_sum = head_rows<const C>(tensors.log_sum, span.first_query, head);
      const auto grad_q = head_rows<T>(tensors.grad_q, span.first_query, head);
      const kernels::PairDropout dropout = pair_dropout(tensors.dropout, span, head);
      for (int64_t first = seeing.begin / size * size; first < seeing.end; first += size) {
        const int64_t rows = std::min(size, span.queries - first);
        const auto [own_first, own_end] = span.band.from(first, 0).keys_seen(rows);
        C* state = states + (keeps_states ? first / size : 0) * blocks.state_size();
        blocks.differentiate(
            {q.from(first), out.from(first), grad_out.from(first), log_sum.from(first), rows},
            span.band.from(first, key), dropout.from(first, key), own_first >= key, grad_k, grad_v, state);
        if (own_end <= key + kBlockKeys) blocks.finish(state, rows, grad_q.from(first));
      }
    }
    const int64_t to = span.first_key + key;
    // A task of all heads that share these keys has their whole gradient; a task of one head among several
    // has its share.
    if (task.end - task.head == group) {
      write_rows<T>(grad_k, count, head_dim, head_rows<T>(tensors.grad_k, to, task.kv_head));
      write_rows<T>(grad_v, count, head_dim, head_rows<T>(tensors.grad_v, to, task.kv_head));
    } else {
      write_rows<T>(grad_k, count, head_dim, head_rows<C>(tensors.k_shares, to, task.head));
      write_rows<T>(grad_v, count, head_dim, head_rows<C>(tensors.v_shares, to, task.head));
    }
  }
}

// Adds up the shares of the query heads that share a key head, always in the order of the heads.
template <class T>
void sum_shares(const at::Tensor& shares, const SeenSpan& span, const at::Tensor& to) {
  using C = kernels::ComputeType<T>;
  const int64_t heads = shares.size(1), kv_heads = to.size(1), group = heads / kv_heads,
                head_dim = to.size(2);
  at::parallel_for(0, span.keys, rows_per_task(heads * head_dim), [&](int64_t begin, int64_t end) {
    for (int64_t token = span.first_key + begin; token < span.first_key + end; ++token) {
      for (int64_t head = 0; head < kv_heads; ++head) {
        kernels::sum_parts(head_rows<const C>(shares, token, head * group).data, head_dim, group,
                           head_rows<T>(to, token, head).data, head_dim);
      }
    }
  });
}

}  // namespace

kernels::PairDropout pair_dropout(const AttentionDropout& dropout, const SeenSpan& span, int64_t head) {
  if (dropout.probability == 0.0) return {};
  return {read<int64_t>(dropout.draws) + span.first_query * dropout.draws.stride(0) +
              head * dropout.draws.stride(1),
          dropout.draws.stride(0), span.ahead, dropout.threshold(), dropout.factor()};
}

AttentionResult host::attend_spans(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
                                   const std::vector<AttentionSpan>& all, const AttentionFormula& formula) {
  const std::vector<SeenSpan> spans = seen_spans(all, formula);
  const at::Tensor q = dense_heads(q_in), k = dense_heads(k_in), v = dense_heads(v_in);
  const int64_t heads = q.size(1), head_dim = q.size(2), kv_heads = k.size(1);
  const bool all_see = is_all(spans, &SeenSpan::queries, q.size(0));
  const at::Tensor out = results(q.sizes(), q.options(), all_see);
  const at::Tensor log_sum =
      at::empty({q.size(0), heads, 1}, q.options().dtype(compute_type(q.scalar_type())));
  if (!all_see) log_sum.fill_(-std::numeric_limits<double>::infinity());
  const double length = mean_queries(spans);
  const std::vector<ForwardTask> tasks = forward_tasks(spans, kv_heads, heads / kv_heads);
  dispatch(q.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    const ForwardTensors tensors{q, out, log_sum, formula.dropout};
    for_each_task(
        static_cast<int64_t>(tasks.size()),
        [&] {
          return ForwardWorker<T>{make_forward_blocks<T>(head_dim, {formula.scale, formula.soft_cap}, length),
                                  {}};
        },
        [&](ForwardWorker<T>& worker, int64_t i) {
          const ForwardTask& task = tasks[static_cast<size_t>(i)];
          const auto of_keys = [&](const at::Tensor& x) {
            return head_rows<const T>(x, task.span.first_key, task.kv_head);
          };
          attend<T>(worker, tensors, task, [&, keys = of_keys(k), values = of_keys(v)](int64_t key, int64_t) {
            return KeyRows<T>{keys.from(key), values.from(key)};
          });
        });
  });
  return {out, log_sum};
}

AttentionGradients host::attend_spans_backward(const at::Tensor& grad_in, const at::Tensor& q_in,
                                               const at::Tensor& k_in, const at::Tensor& v_in,
                                               const AttentionResult& result,
                                               const std::vector<AttentionSpan>& all,
                                               const AttentionFormula& formula) {
  const std::vector<SeenSpan> spans = seen_spans(all, formula);
  const at::Tensor grad = dense_heads(grad_in), q = dense_heads(q_in), k = dense_heads(k_in),
                   v = dense_heads(v_in);
  const int64_t heads = q.size(1), head_dim = q.size(2), kv_heads = k.size(1), group = heads / kv_heads;
  const bool all_are_seen = is_all(spans, &SeenSpan::keys, k.size(0));
  const at::Tensor grad_q = results(q.sizes(), q.options(), is_all(spans, &SeenSpan::queries, q.size(0))),
                   grad_k = results(k.sizes(), k.options(), all_are_seen),
                   grad_v = results(v.sizes(), v.options(), all_are_seen);
  const double length = mean_queries(spans);
  const std::vector<BackwardTask> tasks = backward_tasks(spans, kv_heads, group);
  const bool has_shares = group > 1 && std::any_of(spans.begin(), spans.end(), is_long);
  const auto options = q.options().dtype(compute_type(q.scalar_type()));
  const at::Tensor k_shares = at::empty({has_shares ? k.size(0) : 0, heads, head_dim}, options),
                   v_shares = at::empty(k_shares.sizes(), options);
  dispatch(q.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    const BackwardTensors tensors{q,      k,      v,      result.out, grad,     result.log_sum,
                                  grad_q, grad_k, grad_v, k_shares,   v_shares, formula.dropout};
    for_each_task(
        static_cast<int64_t>(tasks.size()),
        [&] {
          BackwardWorker<T> worker;
          worker.blocks = make_backward_blocks<T>(head_dim, {formula.scale, formula.soft_cap}, length);
          return worker;
        },
        [&](BackwardWorker<T>& worker, int64_t i) { differentiate<T>(worker, tensors, tasks[i]); });
    if (!has_shares) return;
    for (const SeenSpan& span : spans) {
      if (!is_long(span)) continue;
      sum_shares<T>(k_shares, span, grad_k);
      sum_shares<T>(v_shares, span, grad_v);
    }
  });
  return {grad_q, grad_k, grad_v};
}

namespace {

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::optional<at::Tensor>& sinks,
                            const std::vector<int64_t>& starts, const AttentionFormula& formula) {
    const AttentionResult made = attend_spans(q, k, v, spans_of_documents(starts), formula);
    add_sinks(made, formula);
    save_activations(*ctx, {q, k, v, made.out, made.log_sum});
    if (sinks) ctx->saved_data["sinks"] = sinks->detach();
    ctx->saved_data["starts"] = starts;
    ctx->saved_data["formula"] = formula.to_value();
    return made.out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward(kName);
    const auto saved = take_activations(*ctx);
    const auto made = attend_spans_backward(grads[0], saved[0], saved[1], saved[2], {saved[3], saved[4]},
                                            spans_of_documents(ctx->saved_data["starts"].toIntVector()),
                                            AttentionFormula::from_value(ctx->saved_data["formula"]));
    variable_list result = {made.q, made.k, made.v};
    for (size_t i = 0; i < result.size(); ++i) {
      if (!ctx->needs_input_grad(i)) result[i].reset();
    }
    result.resize(6);
    if (ctx->saved_data.count("sinks") > 0)
      result[3] = sinks_gradient(grads[0], {saved[3], saved[4]}, ctx->saved_data["sinks"].toTensor());
    return result;
  }
};

void check_heads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  check_operands(kName, {&q, &k, &v});
  for (const at::Tensor* operand : {&q, &k, &v}) {
    TESSERA_CHECK_ARGUMENT(operand->dim() == 3 && operand->scalar_type() == q.scalar_type(),
                           "attention: q, k, v must be [tokens, heads, head_dim] of one type");
  }
  TESSERA_CHECK_ARGUMENT(k.sizes() == v.sizes() && q.size(2) == k.size(2), "attention: shapes of q, k, v");
  TESSERA_CHECK_ARGUMENT(k.size(1) > 0 && q.size(1) > 0 && q.size(1) % k.size(1) == 0 && q.size(2) > 0,
                         "attention: heads must be a multiple of kv_heads");
}

void check_formula(const at::Tensor& q, const AttentionFormula& formula) {
  formula.check();
  TESSERA_CHECK_ARGUMENT(!formula.sinks.defined() || formula.sinks.numel() == q.size(1),
                         "attention: one sink for each query head");
  const at::Tensor& draws = formula.dropout.draws;
  TESSERA_CHECK_ARGUMENT(!draws.defined() || (draws.scalar_type() == at::kLong && draws.dim() == 2 &&
                                              draws.size(0) == q.size(0) && draws.size(1) == q.size(1)),
                         "attention: one draw for each query and head");
}

// Checks that the ranges are disjoint and lie within the tokens.
void check_ranges(std::vector<kernels::IndexRange> ranges, int64_t tokens) {
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  int64_t end = 0;
  for (const kernels::IndexRange& range : ranges) {
    if (range.size() == 0) continue;
    TESSERA_CHECK_ARGUMENT(range.begin >= end && range.end <= tokens,
                           "attention: spans must be disjoint and within the tokens");
    end = range.end;
  }
}

void check_spans(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                 const std::vector<AttentionSpan>& spans, const AttentionFormula& formula) {
  check_heads(q, k, v);
  check_formula(q, formula);
  std::vector<kernels::IndexRange> queries, keys;
  for (const AttentionSpan& span : spans) {
    TESSERA_CHECK_ARGUMENT(span.queries >= 0 && span.keys >= 0, "attention: a span of negative size");
    queries.push_back({span.first_query, span.first_query + span.queries});
    keys.push_back({span.first_key, span.first_key + span.keys});
  }
  check_ranges(std::move(queries), q.size(0));
  check_ranges(std::move(keys), k.size(0));
}

}  // namespace

AttentionResult attend_spans(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::vector<AttentionSpan>& spans, const AttentionFormula& formula) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_spans(q, k, v, spans, formula);
  return leaves(q).attend_spans(q, k, v, spans, formula);
}

bool some_query_sees(const std::vector<AttentionSpan>& spans, const AttentionFormula& formula) {
  return !seen_spans(spans, formula).empty();
}

AttentionResult attention_of_nothing(const at::Tensor& q) {
  const auto options = q.options().dtype(compute_type(q.scalar_type()));
  return {at::zeros(q.sizes(), options),
          at::full({q.size(0), q.size(1), 1}, -std::numeric_limits<double>::infinity(), options)};
}

void add_attention(const AttentionResult& sum, const AttentionResult& part) {
  const at::Tensor both = at::logaddexp(sum.log_sum, part.log_sum);
  // If a query has seen nothing in either result, both logarithms are minus infinity, and less themselves
  // would be NaN: its share is exp(minus infinity - 0) = 0.
  const auto share = [&](const at::Tensor& log_sum) {
    return at::exp(log_sum - at::where(both.isinf(), at::zeros_like(both), both));
  };
  sum.out.mul_(share(sum.log_sum)).add_(part.out * share(part.log_sum));
  sum.log_sum.copy_(both);
}

void add_sinks(const AttentionResult& result, const AttentionFormula& formula) {
  if (!formula.sinks.defined()) return;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor scores = formula.sinks.to(result.log_sum.scalar_type()).view({1, -1, 1});
  const at::Tensor both = at::logaddexp(result.log_sum, scores);
  result.out.mul_(at::exp(result.log_sum - both));
  result.log_sum.copy_(both);
}

at::Tensor sinks_gradient(const at::Tensor& grad_out, const AttentionResult& result,
                          const at::Tensor& sinks) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::ScalarType exact = result.log_sum.scalar_type();
  const at::Tensor shares = at::exp(sinks.to(exact).view({1, -1, 1}) - result.log_sum);
  const at::Tensor delta = (grad_out.to(exact) * result.out).sum(-1, /*keepdim=*/true);
  return (shares * delta).sum(at::IntArrayRef({0, 2})).neg_().to(sinks.scalar_type());
}

AttentionGradients attend_spans_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const AttentionResult& result,
                                         const std::vector<AttentionSpan>& spans,
                                         const AttentionFormula& formula) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  check_spans(q, k, v, spans, formula);
  return leaves(q).attend_spans_backward(grad_out, q, k, v, result, spans, formula);
}

at::Tensor document_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::vector<int64_t>& document_starts, const AttentionFormula& formula) {
  const trace::Scope trace_scope("document_attention");
  check_heads(q, k, v);
  check_formula(q, formula);
  TESSERA_CHECK_ARGUMENT(k.size(0) == q.size(0), "document_attention: q and k have the same tokens");
  TESSERA_CHECK_ARGUMENT(!document_starts.empty() && document_starts.front() == 0 &&
                             document_starts.back() == q.size(0) &&
                             std::is_sorted(document_starts.begin(), document_starts.end()),
                         "document_attention: document_starts must run from 0 to tokens");
  const bool has_sinks = formula.sinks.defined();
  const auto whole = leaves(q).document_attention;
  if (whole != nullptr && !has_sinks && formula.dropout.probability == 0.0)
    return whole(q, k, v, document_starts, formula);
  if (!needs_graph({q, k, v, has_sinks ? formula.sinks : q})) {
    const AttentionResult made = attend_spans(q, k, v, spans_of_documents(document_starts), formula);
    add_sinks(made, formula);
    return made.out;
  }
  return AttentionFunction::apply(q, k, v, has_sinks ? std::optional(formula.sinks) : std::nullopt,
                                  document_starts, formula);
}

}  // namespace tessera::ops
