#include "tessera/ops/linear_cross_entropy.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/trace.h"
#include "tessera/device/host_memory.h"
#include "tessera/device/memory_scope.h"
#include "tessera/ops/direct_gradient.h"
#include "tessera/ops/leaf.h"
#include "tessera/ops/product.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kName = "linear_cross_entropy";

// Positions that have a label, and their labels, in the order of the tokens.
struct Labelled {
  std::vector<int64_t> positions, labels;
};

Labelled find_labelled(const at::Tensor& labels_in, int64_t vocabulary) {
  const at::Tensor labels = labels_in.contiguous();
  const int64_t* label = read<int64_t>(labels);
  Labelled found;
  for (int64_t i = 0; i < labels.numel(); ++i) {
    if (label[i] == kIgnoreLabel) continue;
    if (label[i] < 0 || label[i] >= vocabulary) {
      throw Error(ErrorKind::Data, "LABEL-RANGE",
                  "label at position " + std::to_string(i) + " is not a token")
          .got(std::to_string(label[i]))
          .need("0 to " + std::to_string(vocabulary - 1) + ", or " + std::to_string(kIgnoreLabel));
    }
    found.positions.push_back(i);
    found.labels.push_back(label[i]);
  }
  return found;
}

// Returns, for each row of logits, 1 if another token is likelier than the label, and 0 if the label is the
// likeliest, or the first of several that are: [rows], of the type in which losses are computed. Collective
// among the holders of the parts.
at::Tensor misses_of(const at::Tensor& logits, const at::Tensor& labels, const VocabularyPart* part) {
  const auto exact = compute_type(logits.scalar_type());
  const int64_t first_token = part == nullptr ? 0 : part->first_token;
  const at::Tensor ids = at::arange(first_token, first_token + logits.size(1), labels.options()).unsqueeze(0);
  const at::Tensor label_ids = labels.unsqueeze(1);
  // A sum over one element, since a part may have no column, or not that of the label.
  at::Tensor of_label = at::where(ids.eq(label_ids), logits.to(exact), 0.0).sum(1, /*keepdim=*/true);
  if (part != nullptr) part->all_sum(of_label);
  const at::Tensor is_ahead =
      logits.gt(of_label).logical_or_(logits.eq(of_label).logical_and_(ids.lt(label_ids)));
  at::Tensor misses = is_ahead.any(1).to(exact);
  if (part != nullptr) part->all_max(misses);
  return misses;
}

// Adds each number to the sum of its token's source. numbers: [positions]; sums: [sources].
void add_by_source(const at::Tensor& numbers, const std::vector<int64_t>& positions,
                   const LossSources& sources, const at::Tensor& sums) {
  const auto of_token = host_span<const int64_t>(sources.of_token);
  std::vector<int64_t> of_loss;
  of_loss.reserve(positions.size());
  for (const int64_t position : positions) of_loss.push_back(of_token[static_cast<size_t>(position)]);
  sums.index_add_(0, copied_to<int64_t>(numbers.device(), of_loss), numbers);
}

// The result of a forward; gradients are for a loss whose own gradient is 1.
struct Result {
  at::Tensor loss, grad_hidden, grad_weight, grad_bias;  // gradients are undefined if not wanted
};

// Holds the operands of the logits, and which of them want a gradient.
struct LossOperands {
  at::Tensor hidden, weight, bias;  // bias: undefined if there is none
  bool want_hidden = false, want_weight = false, want_bias = false;
};

// Caps logits in place. Returns the derivative of the cap at each of them, if it is wanted and there is a
// cap.
at::Tensor cap_logits(at::Tensor logits, double soft_cap, bool wants_slope) {
  if (soft_cap == 0.0) return {};
  logits.div_(soft_cap).tanh_();
  const at::Tensor slope = wants_slope ? at::rsub(logits.square(), 1) : at::Tensor();
  logits.mul_(soft_cap);
  return slope;
}

// Returns memory for the gradients that are wanted, of `count` positions with labels. Sums over chunks are of
// the type `exact`, at least float32. The first chunk writes them, so zeros are filled in only if there is no
// chunk.
Result make_gradients(const LossOperands& operands, at::IntArrayRef hidden_sizes, int64_t count,
                      at::ScalarType exact) {
  const auto& [hidden, weight, bias, want_hidden, want_weight, want_bias] = operands;
  const bool all = count == hidden_sizes[0];
  Result result;
  if (want_hidden) {
    result.grad_hidden =
        all ? at::empty(hidden_sizes, hidden.options()) : at::zeros(hidden_sizes, hidden.options());
  }
  if (want_weight) {
    const MemoryScope of_weight(MemoryCategory::Gradients);
    result.grad_weight = count > 0 ? at::empty(weight.sizes(), weight.options().dtype(exact))
                                   : at::zeros(weight.sizes(), weight.options().dtype(exact));
  }
  if (want_bias) result.grad_bias = at::zeros(bias.sizes(), bias.options().dtype(exact));
  return result;
}

// [Note: gradients in the forward] The logits of all positions would be the largest tensor of a step, and a
// backward would have to keep them or to compute them again. So each chunk of positions makes its gradients
// while its logits are there:
//
//   logits = rows W^T;  losses of the rows;  logits := d losses / d logits, in place;
//   grad_hidden[rows] = logits W;  grad_weight += logits^T rows.
//
// The loss is a plain sum, so the gradients of a loss that is scaled by s are these times s: the backward
// multiplies them (way 3 of [Note: ways around autograd] in linear.cpp). One buffer serves all chunks: on a
// device, the order of the stream keeps a chunk's products ahead of the next chunk's logits. Over parts of a
// vocabulary, cross_entropy() reduces each chunk's maxima and sums over the holders, so all holders must cut
// the same chunks: their size is derived from the labels and the size of the whole vocabulary, which are
// equal on all of them.
Result compute(const LossOperands& operands, const at::Tensor& labels, int64_t chunk,
               const VocabularyPart* part, const LossSources* sources, const LossTerms& terms) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const MemoryScope memory(MemoryCategory::Loss);
  const auto& [hidden_in, weight, bias, want_hidden, want_weight, want_bias] = operands;
  const at::Tensor hidden = hidden_in.contiguous();
  const auto type = hidden.scalar_type(), exact = compute_type(type);
  // The size of the whole vocabulary, not of this part: holders of all parts must choose the same chunks.
  const int64_t vocabulary = part == nullptr ? weight.size(0) : part->vocab_size;
  const LossFormula formula{terms, vocabulary, part};
  const Leaves& leaf = leaves(hidden);
  Labelled found = find_labelled(labels, vocabulary);
  const int64_t count = static_cast<int64_t>(found.labels.size());
  // If all positions have a label, rows and their gradients are views of whole tensors, with no gather or
  // scatter.
  const bool all = count == hidden.size(0);
  if (chunk == 0) chunk = leaf.logit_chunks.rows(count, vocabulary, hidden.element_size());

  Result result = make_gradients(operands, hidden.sizes(), count, exact);
  const at::Tensor losses = at::empty({count}, hidden.options().dtype(at::kDouble));
  const bool counts_misses = sources != nullptr && sources->losses.dim() == 2;
  const at::Tensor misses = counts_misses ? at::empty_like(losses) : at::Tensor();
  const at::Tensor positions = copied_to<int64_t>(hidden.device(), found.positions);
  const at::Tensor labels_there = copied_to<int64_t>(hidden.device(), found.labels);
  at::Tensor buffer = at::empty({std::min(chunk, count), weight.size(0)}, hidden.options());
  for (int64_t begin = 0; begin < count; begin += chunk) {
    const int64_t size = std::min(chunk, count - begin);
    const at::Tensor index = positions.narrow(0, begin, size);
    const at::Tensor rows = all ? hidden.narrow(0, begin, size) : hidden.index_select(0, index);
    at::Tensor logits = buffer.narrow(0, 0, size);
    product_out(logits, rows, weight.t());
    if (bias.defined()) logits.add_(bias);
    const bool in_place = want_hidden || want_weight || want_bias;
    const at::Tensor slope = cap_logits(logits, terms.soft_cap, in_place);
    // The logits are there until their gradients take their place.
    if (counts_misses)
      misses.narrow(0, begin, size).copy_(misses_of(logits, labels_there.narrow(0, begin, size), part));
    leaf.cross_entropy(logits, labels_there.narrow(0, begin, size), losses.narrow(0, begin, size), in_place,
                       formula);
    if (slope.defined()) logits.mul_(slope);
    if (want_bias) result.grad_bias.add_(logits.sum(at::IntArrayRef({0}), /*keepdim=*/false, exact));
    if (want_hidden && all) {
      product_out(result.grad_hidden.narrow(0, begin, size), logits, weight);
    } else if (want_hidden) {
      result.grad_hidden.index_copy_(0, index, product(logits, weight));
    }
    if (!want_weight) continue;
    begin == 0 ? product_out(result.grad_weight, logits.t(), rows)
               : add_product(result.grad_weight, logits.t(), rows);
  }
  if (sources != nullptr) {
    const at::Tensor& sums = sources->losses;
    add_by_source(losses, found.positions, *sources, counts_misses ? sums.select(0, 0) : sums);
    if (counts_misses) add_by_source(misses, found.positions, *sources, sums.select(0, 1));
  }
  result.loss = leaves(losses).sum_losses(losses).to(exact);
  return result;
}

struct LinearCrossEntropyFunction : torch::autograd::Function<LinearCrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& hidden, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const at::Tensor& labels, int64_t chunk,
                            const VocabularyPart* part, const LossSources* sources, const LossTerms& terms) {
    Result result = compute({hidden, weight, bias.value_or(at::Tensor()), hidden.requires_grad(),
                             weight.requires_grad(), bias && bias->requires_grad()},
                            labels, chunk, part, sources, terms);
    ctx->saved_data["grad_hidden"] = result.grad_hidden;
    ctx->saved_data["grad_weight"] = result.grad_weight;
    ctx->saved_data["grad_bias"] = result.grad_bias;
    ctx->saved_data["bias_type"] = (bias ? *bias : weight).scalar_type();
    // Keeps the leaf itself, as the mark of direct gradients is on it. The backward reads none of its
    // numbers.
    ctx->saved_data["weight"] = weight;
    return result.loss;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward(kName);
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    // The gradients are moved out of the graph, scaled in place and given away: there is no second copy of
    // the weight's size.
    TESSERA_CHECK_ARGUMENT(ctx->saved_data.count("grad_hidden") != 0,
                           "linear_cross_entropy: backward runs once");
    const auto take = [&](const char* name) {
      at::Tensor gradient = ctx->saved_data[name].toTensor();
      ctx->saved_data.erase(name);
      return gradient;
    };
    at::Tensor grad_hidden = take("grad_hidden"), grad_weight = take("grad_weight"),
               grad_bias = take("grad_bias");
    if (grad_hidden.defined()) grad_hidden.mul_(grads[0]);
    if (grad_bias.defined())
      grad_bias = grad_bias.mul_(grads[0]).to(ctx->saved_data["bias_type"].toScalarType());
    if (!grad_weight.defined()) return {grad_hidden, grad_weight, grad_bias, {}, {}, {}, {}, {}};
    const MemoryScope memory(MemoryCategory::Gradients);
    const at::Tensor weight = take("weight");
    const auto direct_type = direct_gradient_type(weight);
    // An earlier micro-batch or another op has made the gradient: adds to it in one pass, scaled on the way.
    if (direct_type && weight.grad().defined()) {
      weight.mutable_grad().addcmul_(grad_weight, grads[0].to(grad_weight.scalar_type()));
      return {grad_hidden, {}, grad_bias, {}, {}, {}, {}, {}};
    }
    grad_weight = grad_weight.mul_(grads[0]).to(direct_type.value_or(weight.scalar_type()));
    // Nobody has made it yet: the sum itself becomes the gradient.
    if (direct_type) {
      weight.mutable_grad() = grad_weight;
      grad_weight.reset();
    }
    return {grad_hidden, grad_weight, grad_bias, {}, {}, {}, {}, {}};
  }
};

}  // namespace

int64_t linear_cross_entropy_chunk(int64_t positions, int64_t vocabulary, int64_t bytes_per_logit) {
  return LogitChunks().rows(positions, vocabulary, bytes_per_logit);
}

int64_t LogitChunks::rows(int64_t positions, int64_t vocabulary, int64_t bytes_per_logit) const {
  if (positions <= 0) return 1;
  const int64_t row = std::max<int64_t>(1, vocabulary * bytes_per_logit);
  const int64_t most = std::max({int64_t{1}, bytes / row, std::min(good_rows, max_bytes / row)});
  // Chunks are of nearly equal size, so that the last one is not a sliver.
  const int64_t chunks = (positions + most - 1) / most;
  return (positions + chunks - 1) / chunks;
}

at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                                int64_t chunk_tokens, const VocabularyPart* part, const LossSources* sources,
                                const LossTerms& terms, const at::Tensor& bias) {
  const trace::Scope trace_scope("linear_cross_entropy");
  check_operands(kName, {&hidden, &weight});
  TESSERA_CHECK_ARGUMENT(hidden.dim() == 2 && weight.dim() == 2 && hidden.size(1) == weight.size(1) &&
                             hidden.scalar_type() == weight.scalar_type(),
                         "linear_cross_entropy: shapes or types of hidden and weight");
  TESSERA_CHECK_ARGUMENT(labels.dim() == 1 && labels.size(0) == hidden.size(0) &&
                             labels.scalar_type() == at::kLong && is_on_host(labels),
                         "linear_cross_entropy: labels must be [tokens] int64 on the host");
  TESSERA_CHECK_ARGUMENT(chunk_tokens >= 0, "linear_cross_entropy: chunk_tokens");
  TESSERA_CHECK_ARGUMENT(terms.label_smoothing >= 0.0 && terms.label_smoothing < 1.0,
                         "linear_cross_entropy: label_smoothing");
  TESSERA_CHECK_ARGUMENT(terms.z_loss_coef >= 0.0, "linear_cross_entropy: z_loss_coef");
  TESSERA_CHECK_ARGUMENT(terms.soft_cap >= 0.0, "linear_cross_entropy: soft_cap");
  const bool has_bias = bias.defined();
  TESSERA_CHECK_ARGUMENT(!has_bias || (bias.dim() == 1 && bias.size(0) == weight.size(0) &&
                                       bias.scalar_type() == weight.scalar_type()),
                         "linear_cross_entropy: shape or type of the bias");
  if (!needs_graph({hidden, weight, has_bias ? bias : weight}))
    return compute({hidden, weight, bias}, labels, chunk_tokens, part, sources, terms).loss;
  return LinearCrossEntropyFunction::apply(hidden, weight, has_bias ? std::optional(bias) : std::nullopt,
                                           labels, chunk_tokens, part, sources, terms);
}

}  // namespace tessera::ops
