#include "tessera/ops/span_attention.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/trace.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/saved_activation.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kSpans = "span_attention";
constexpr const char* kBiased = "biased_attention";

// The most scores that a block of queries has at a time, over all heads, unless one query has more.
constexpr int64_t kBlockScores = int64_t{1} << 21;

constexpr int64_t kSpanFields = 5;

std::vector<int64_t> to_numbers(const std::vector<AttentionSpan>& spans) {
  std::vector<int64_t> numbers;
  for (const AttentionSpan& span : spans)
    numbers.insert(numbers.end(), {span.first_query, span.queries, span.first_key, span.keys, span.ahead});
  return numbers;
}

std::vector<AttentionSpan> to_spans(const std::vector<int64_t>& numbers) {
  std::vector<AttentionSpan> spans;
  for (auto at = numbers.begin(); at != numbers.end(); at += kSpanFields)
    spans.push_back({at[0], at[1], at[2], at[3], at[4]});
  return spans;
}

struct SpanFunction : torch::autograd::Function<SpanFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::vector<AttentionSpan>& spans,
                            const AttentionFormula& formula) {
    const AttentionResult made = attend_spans(q, k, v, spans, formula);
    save_activations(*ctx, {q, k, v, made.out, made.log_sum});
    ctx->saved_data["spans"] = to_numbers(spans);
    ctx->saved_data["formula"] = formula.to_value();
    return made.out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward(kSpans);
    const auto saved = take_activations(*ctx);
    const auto made = attend_spans_backward(grads[0], saved[0], saved[1], saved[2], {saved[3], saved[4]},
                                            to_spans(ctx->saved_data["spans"].toIntVector()),
                                            AttentionFormula::from_value(ctx->saved_data["formula"]));
    variable_list result = {made.q, made.k, made.v, {}, {}};
    for (size_t i = 0; i < 3; ++i) {
      if (!ctx->needs_input_grad(i)) result[i].reset();
    }
    return result;
  }
};

// Cuts the spans into blocks of at most kBlockScores scores: runs of queries, with those keys of their span
// that at least one of them sees, its first ones. Blocks without keys are left out.
std::vector<AttentionSpan> blocks_of(const std::vector<AttentionSpan>& spans, int64_t heads, bool is_causal) {
  std::vector<AttentionSpan> blocks;
  for (const AttentionSpan& span : spans) {
    const int64_t fit = kBlockScores / std::max<int64_t>(1, heads * span.keys);
    const int64_t size = std::clamp<int64_t>(fit, 1, std::max<int64_t>(1, span.queries));
    for (int64_t first = 0; first < span.queries; first += size) {
      AttentionSpan block{span.first_query + first, std::min(size, span.queries - first), span.first_key,
                          span.keys, span.ahead + first};
      if (is_causal) block.keys = std::clamp<int64_t>(block.ahead + block.queries, 0, span.keys);
      if (block.keys > 0) blocks.push_back(block);
    }
  }
  return blocks;
}

// Returns x, [heads, queries, ...], with its queries in the reverse order. LibTorch's flip() does not run on
// the meta device.
at::Tensor backwards(const at::Tensor& x) {
  const at::Tensor order = at::arange(x.size(1) - 1, -1, -1, at::TensorOptions(x.device()).dtype(at::kLong));
  return x.index_select(1, order);
}

// The operands of all blocks, in the type that they are computed in, [heads, tokens, head_dim].
struct BiasedOperands {
  at::Tensor q, k, v, bias;
  AttentionFormula formula;

  BiasedOperands(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in,
                 const at::Tensor& bias_in, AttentionFormula f)
      : formula(std::move(f)) {
    const at::ScalarType exact = compute_type(q_in.scalar_type());
    const auto by_head = [&](const at::Tensor& x) { return x.to(exact).transpose(0, 1); };
    q = by_head(q_in);
    k = by_head(k_in);
    v = by_head(v_in);
    bias = bias_in.to(exact).contiguous();
  }

  // Returns the column of the biases that belongs to the block's last query and first key. The biases of a
  // query's keys lie side by side, and those of the query before it begin one column further on.
  int64_t first_column(const AttentionSpan& block) const {
    return (bias.size(1) - 1) / 2 - (block.ahead + block.queries - 1);
  }

  // Returns a function that drops values of the block's pairs, [heads, queries, keys].
  auto dropout_of(const AttentionSpan& block) const {
    at::Tensor factors;
    if (formula.dropout.probability > 0) factors = dropout_factors(formula.dropout, block, q.scalar_type());
    return
        [factors](const at::Tensor& of_pairs) { return factors.defined() ? of_pairs * factors : of_pairs; };
  }

  // Returns the softmax of the block's scores, [heads, queries, keys].
  at::Tensor weights(const AttentionSpan& block) const {
    const at::Tensor queries = q.narrow(1, block.first_query, block.queries),
                     keys = k.narrow(1, block.first_key, block.keys);
    at::Tensor scores = at::matmul(queries, keys.transpose(1, 2));
    if (formula.scale != 1.0) scores.mul_(formula.scale);
    scores.add_(backwards(
        bias.narrow(1, first_column(block), block.queries + block.keys - 1).unfold(1, block.keys, 1)));
    if (!formula.is_causal) return at::softmax(scores, 2);
    const at::Tensor is_later =
        at::ones({block.queries, block.keys}, q.options().dtype(at::kBool)).triu(block.ahead + 1);
    scores.masked_fill_(is_later, -std::numeric_limits<double>::infinity());
    // A query before the first key sees none.
    return at::softmax(scores, 2).masked_fill_(is_later, 0.0);
  }
};

// Sums x, [heads, queries, keys], over the pairs of equal distance: [heads, queries + keys - 1], from the
// last query's first key on.
at::Tensor sum_distances(const at::Tensor& x) {
  const int64_t heads = x.size(0), queries = x.size(1), keys = x.size(2);
  // Row r of the rows in reverse order moves r columns to the right when rows that are `queries` wider are
  // read as rows that are one column narrower.
  const at::Tensor wide = at::constant_pad_nd(backwards(x), {0, queries});
  const int64_t width = queries + keys - 1;
  return wide.flatten(1).narrow(1, 0, queries * width).view({heads, queries, width}).sum(1);
}

struct BiasedFunction : torch::autograd::Function<BiasedFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const at::Tensor& bias,
                            const std::vector<AttentionSpan>& spans, const AttentionFormula& formula) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    save_activations(*ctx, {q, k, v}, {bias});
    ctx->saved_data["spans"] = to_numbers(spans);
    ctx->saved_data["formula"] = formula.to_value();
    return run(q, k, v, bias, spans, formula);
  }

  static at::Tensor run(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bias,
                        const std::vector<AttentionSpan>& spans, const AttentionFormula& formula) {
    const BiasedOperands operands(q, k, v, bias, formula);
    const at::Tensor out = at::zeros(q.sizes(), q.options());
    for (const AttentionSpan& block : blocks_of(spans, q.size(1), formula.is_causal)) {
      const at::Tensor made = at::matmul(operands.dropout_of(block)(operands.weights(block)),
                                         operands.v.narrow(1, block.first_key, block.keys));
      out.narrow(0, block.first_query, block.queries).copy_(made.transpose(0, 1));
    }
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward(kBiased);
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto saved = take_activations(*ctx);
    const BiasedOperands in(saved[0], saved[1], saved[2], saved[3],
                            AttentionFormula::from_value(ctx->saved_data["formula"]));
    const at::Tensor grad_out = grads[0].to(in.q.scalar_type()).transpose(0, 1);
    const auto zeros_like = [](const at::Tensor& x) { return at::zeros(x.sizes(), x.options()); };
    const at::Tensor grad_q = zeros_like(in.q), grad_k = zeros_like(in.k), grad_v = zeros_like(in.v),
                     grad_bias = zeros_like(in.bias);
    const auto spans = to_spans(ctx->saved_data["spans"].toIntVector());
    for (const AttentionSpan& block : blocks_of(spans, in.q.size(0), in.formula.is_causal)) {
      const auto of_keys = [&](const at::Tensor& x) { return x.narrow(1, block.first_key, block.keys); };
      const auto of_queries = [&](const at::Tensor& x) {
        return x.narrow(1, block.first_query, block.queries);
      };
      const at::Tensor weights = in.weights(block), grad = of_queries(grad_out);
      const auto dropped = in.dropout_of(block);
      of_keys(grad_v).add_(at::matmul(dropped(weights).transpose(1, 2), grad));
      at::Tensor scores = dropped(at::matmul(grad, of_keys(in.v).transpose(1, 2)));
      // The gradient of the scores, by that of the softmax.
      scores = weights * (scores - (scores * weights).sum(2, /*keepdim=*/true));
      grad_bias.narrow(1, in.first_column(block), block.queries + block.keys - 1).add_(sum_distances(scores));
      if (in.formula.scale != 1.0) scores.mul_(in.formula.scale);
      of_queries(grad_q).copy_(at::matmul(scores, of_keys(in.k)));
      of_keys(grad_k).add_(at::matmul(scores.transpose(1, 2), of_queries(in.q)));
    }
    const auto as_given = [](const at::Tensor& grad_of, const at::Tensor& x) {
      return grad_of.transpose(0, 1).to(x.scalar_type());
    };
    variable_list result = {as_given(grad_q, saved[0]),
                            as_given(grad_k, saved[1]),
                            as_given(grad_v, saved[2]),
                            grad_bias.to(saved[3].scalar_type()),
                            {},
                            {}};
    for (size_t i = 0; i < 4; ++i) {
      if (!ctx->needs_input_grad(i)) result[i].reset();
    }
    return result;
  }
};

void check_bias(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                const std::vector<AttentionSpan>& spans, const AttentionFormula& formula,
                const at::Tensor& bias) {
  check_operands(kBiased, {&q, &k, &v, &bias});
  formula.check();
  TESSERA_CHECK_ARGUMENT(q.dim() == 3 && k.dim() == 3 && k.sizes() == v.sizes() && q.size(1) == k.size(1) &&
                             q.size(2) == k.size(2),
                         "biased_attention: shapes of q, k, v");
  TESSERA_CHECK_ARGUMENT(bias.dim() == 2 && bias.size(0) == q.size(1) && bias.size(1) % 2 == 1,
                         "biased_attention: the biases are [heads, 2 reach + 1]");
  TESSERA_CHECK_ARGUMENT(!formula.sinks.defined() && formula.window == 0 && formula.soft_cap == 0.0,
                         "biased_attention: no sinks, window or soft cap");
  const int64_t reach = (bias.size(1) - 1) / 2;
  for (const AttentionSpan& span : spans) {
    TESSERA_CHECK_ARGUMENT(span.first_query >= 0 && span.queries >= 0 && span.first_key >= 0 &&
                               span.keys >= 0 && span.first_query + span.queries <= q.size(0) &&
                               span.first_key + span.keys <= k.size(0),
                           "biased_attention: spans must be within the tokens");
    const bool is_near = span.ahead >= 0 && span.ahead + span.queries - 1 <= reach &&
                         (formula.is_causal || span.keys - 1 - span.ahead <= reach);
    TESSERA_CHECK_ARGUMENT(span.queries == 0 || span.keys == 0 || is_near,
                           "biased_attention: a key is farther away than the biases reach");
  }
}

}  // namespace

at::Tensor span_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const std::vector<AttentionSpan>& spans, const AttentionFormula& formula) {
  const trace::Scope trace_scope(kSpans);
  TESSERA_CHECK_ARGUMENT(!formula.sinks.defined(), "span_attention: no sinks");
  if (!needs_graph({q, k, v})) return attend_spans(q, k, v, spans, formula).out;
  return SpanFunction::apply(q, k, v, spans, formula);
}

at::Tensor biased_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::vector<AttentionSpan>& spans, const AttentionFormula& formula,
                            const at::Tensor& bias) {
  const trace::Scope trace_scope(kBiased);
  check_bias(q, k, v, spans, formula, bias);
  if (!needs_graph({q, k, v, bias})) return BiasedFunction::run(q, k, v, bias, spans, formula);
  return BiasedFunction::apply(q, k, v, bias, spans, formula);
}

}  // namespace tessera::ops
