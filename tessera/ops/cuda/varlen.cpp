#include "tessera/ops/cuda/varlen.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>

#include "tessera/ops/support.h"

namespace tessera::ops::cuda {
namespace {

// Returns the call of one span, with the distances of [Note: bands]. The span is trimmed to what is seen, so
// none of them is negative.
VarlenCall call_of(const SeenSpan& span, const AttentionFormula& formula) {
  const int64_t d = span.keys - span.queries;
  VarlenCall call;
  const auto bounded = [](int64_t distance) {
    return std::min<int64_t>(distance, std::numeric_limits<int32_t>::max());
  };
  if (formula.window > 0) call.left = bounded(d - span.band.first);
  if (formula.is_causal || formula.window > 0) call.right = bounded(span.band.last - d);
  // Causal spans whose first query sees all keys, as those of an earlier part of a document, get no bound: it
  // is then the same for all such spans, which share a call.
  if (formula.is_causal && call.right > 0 && call.right >= span.queries - 1) call.right = -1;
  return call;
}

// The rows of a tensor x, [tokens, ...], that are the queries, or the keys, of a call.
struct Side {
  int64_t SeenSpan::*first;
  int64_t SeenSpan::*count;

  bool is_run(const VarlenCall& call) const {
    int64_t next = call.spans.front().*first;
    return std::all_of(call.spans.begin(), call.spans.end(), [&](const SeenSpan& span) {
      const bool follows = span.*first == next;
      next += span.*count;
      return follows;
    });
  }
  at::Tensor take(const at::Tensor& x, const VarlenCall& call) const {
    if (is_run(call)) return x.narrow(0, call.spans.front().*first, call.starts(count).back());
    std::vector<at::Tensor> parts;
    for (const SeenSpan& span : call.spans) parts.push_back(x.narrow(0, span.*first, span.*count));
    return at::cat(parts);
  }
  void put(const at::Tensor& x, const VarlenCall& call, const at::Tensor& rows) const {
    if (is_run(call)) {
      x.narrow(0, call.spans.front().*first, rows.size(0)).copy_(rows);
      return;
    }
    int64_t next = 0;
    for (const SeenSpan& span : call.spans) {
      x.narrow(0, span.*first, span.*count).copy_(rows.narrow(0, next, span.*count));
      next += span.*count;
    }
  }
  // Tells whether the call's rows are all rows of the tensor.
  bool is_all(const std::vector<VarlenCall>& calls, const at::Tensor& x) const {
    return calls.size() == 1 && is_run(calls.front()) && calls.front().starts(count).back() == x.size(0);
  }
};
constexpr Side kQueries{&SeenSpan::first_query, &SeenSpan::queries};
constexpr Side kKeys{&SeenSpan::first_key, &SeenSpan::keys};

// Turn log_sum from [heads, queries] into [queries, heads, 1], and back.
at::Tensor by_query(const at::Tensor& log_sum) { return log_sum.t().unsqueeze(2); }
at::Tensor by_head(const at::Tensor& log_sum) { return log_sum.squeeze(2).t(); }

}  // namespace

std::vector<int32_t> VarlenCall::starts(int64_t SeenSpan::*count) const {
  std::vector<int32_t> starts = {0};
  for (const SeenSpan& span : spans) starts.push_back(starts.back() + static_cast<int32_t>(span.*count));
  return starts;
}

int64_t VarlenCall::longest(int64_t SeenSpan::*count) const {
  int64_t longest = 2;
  for (const SeenSpan& span : spans) longest = std::max(longest, span.*count);
  return longest;
}

// [Note: bands] In a span, query i sees the keys i + first .. i + last. A kernel counts from the last key
// back: with d, the number of keys less that of queries, left = d - first and right = last - d.
std::vector<VarlenCall> varlen_calls(const std::vector<AttentionSpan>& spans,
                                     const AttentionFormula& formula) {
  std::vector<VarlenCall> calls;
  for (const SeenSpan& span : seen_spans(spans, formula)) {
    VarlenCall own = call_of(span, formula);
    auto call = std::find_if(calls.begin(), calls.end(), [&](const VarlenCall& other) {
      return other.left == own.left && other.right == own.right;
    });
    if (call == calls.end()) call = calls.insert(call, std::move(own));
    call->spans.push_back(span);
  }
  return calls;
}

AttentionResult attend_by(const VarlenKernel& kernel, const at::Tensor& q, const at::Tensor& k,
                          const at::Tensor& v, const std::vector<AttentionSpan>& spans,
                          const AttentionFormula& formula) {
  const std::vector<VarlenCall> calls = varlen_calls(spans, formula);
  const auto run = [&](const VarlenCall& call) {
    return kernel.forward(kQueries.take(q, call), kKeys.take(k, call), kKeys.take(v, call), call,
                          formula.scale);
  };
  if (kQueries.is_all(calls, q)) {
    const AttentionResult made = run(calls.front());
    return {made.out, by_query(made.log_sum)};
  }
  const AttentionResult result{at::zeros(q.sizes(), q.options()),
                               at::full({q.size(0), q.size(1), 1}, -std::numeric_limits<double>::infinity(),
                                        q.options().dtype(compute_type(q.scalar_type())))};
  for (const VarlenCall& call : calls) {
    const AttentionResult made = run(call);
    kQueries.put(result.out, call, made.out);
    kQueries.put(result.log_sum, call, by_query(made.log_sum));
  }
  return result;
}

AttentionGradients differentiate_by(const VarlenKernel& kernel, const at::Tensor& grad_out,
                                    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const AttentionResult& result, const std::vector<AttentionSpan>& spans,
                                    const AttentionFormula& formula) {
  const std::vector<VarlenCall> calls = varlen_calls(spans, formula);
  const auto run = [&](const VarlenCall& call) {
    return kernel.backward(
        kQueries.take(grad_out, call), kQueries.take(q, call), kKeys.take(k, call), kKeys.take(v, call),
        {kQueries.take(result.out, call), by_head(kQueries.take(result.log_sum, call))}, call, formula.scale);
  };
  if (kQueries.is_all(calls, q) && kKeys.is_all(calls, k)) return run(calls.front());
  const AttentionGradients sum{at::zeros(q.sizes(), q.options()), at::zeros(k.sizes(), k.options()),
                               at::zeros(v.sizes(), v.options())};
  for (const VarlenCall& call : calls) {
    const AttentionGradients made = run(call);
    kQueries.put(sum.q, call, made.q);
    kKeys.put(sum.k, call, made.k);
    kKeys.put(sum.v, call, made.v);
  }
  return sum;
}

}  // namespace tessera::ops::cuda
