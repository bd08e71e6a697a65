#include "tessera/ops/linear_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/host_memory.h"
#include "tessera/core/memory_scope.h"
#include "tessera/core/trace.h"
#include "tessera/ops/direct_gradient.h"
#include "tessera/ops/product.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kName = "linear_cross_entropy";
// The larger a chunk, the less often the weight is packed for a product, but its logits are the largest
// tensor of a step.
constexpr int64_t kChunkBytes = int64_t{32} << 20, kMaxChunkBytes = int64_t{112} << 20, kGoodRows = 512;

// Positions that have a label, and their labels.
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

// The values on a device; on the host the same memory.
at::Tensor on_device(std::vector<int64_t>& values, at::Device device) {
  return at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, on_host(at::kLong)).to(device);
}

at::Tensor sum_in_order(const at::Tensor& losses) {
  if (!uses_kernels(losses)) return losses.sum();
  double sum = 0;
  for (int64_t i = 0; i < losses.numel(); ++i) sum += read<double>(losses)[i];
  return at::scalar_tensor(sum, losses.options());
}

// The part of the target that all tokens of the vocabulary share; 0 = none.
struct Smoothing {
  double factor = 0.0;
  int64_t vocabulary = 1;

  bool is_on() const { return factor > 0.0; }
  double of_token() const { return factor / static_cast<double>(vocabulary); }
};

// LossTerms for a vocabulary.
struct Terms {
  Smoothing smoothing;
  double z_coef = 0.0;

  // Of a position whose logarithm of the denominator is `log_sum`: its z-loss, and what the softmax in the
  // gradient is multiplied by because of it, less 1.
  template <class T>
  T z_loss(T log_sum) const {
    return log_sum * log_sum * z_coef;
  }
  template <class T>
  T z_slope(T log_sum) const {
    return log_sum * (2.0 * z_coef);
  }
};

// Makes of every part's sums those of the whole vocabulary. sums: [2, positions], the logarithms of the sums
// of exponentials and the logits of the labels, 0 where another part holds the label; with smoothing [3,
// positions], the sums of the logits too.
void combine_parts(const at::Tensor& sums, const VocabularyPart& part) {
  const at::Tensor log_sums = sums.select(0, 0), largest = log_sums.clone();
  part.all_max(largest);
  log_sums.sub_(largest).exp_();
  part.all_sum(sums);
  log_sums.log_().add_(largest);
}

// losses_of() as a formula, for any device.
void losses_plain(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& losses, bool in_place,
                  const VocabularyPart* part, const Terms& terms) {
  const Smoothing& smoothing = terms.smoothing;
  const at::ScalarType exact = compute_type(logits.scalar_type());
  const int64_t count = logits.size(0), width = logits.size(1);
  const at::Tensor sums = at::zeros({smoothing.is_on() ? 3 : 2, count}, logits.options().dtype(exact));
  const at::Tensor log_sums = sums.select(0, 0), targets = sums.select(0, 1);
  const at::Tensor wide = logits.to(exact), place = labels - (part == nullptr ? 0 : part->first_token);
  const at::Tensor is_held = place.ge(0).logical_and(place.lt(width));
  const at::Tensor column = place.clamp(0, std::max<int64_t>(width - 1, 0)).unsqueeze(1);
  log_sums.copy_(at::logsumexp(wide, 1));
  if (width > 0) targets.copy_(at::where(is_held, wide.gather(1, column).squeeze(1), targets));
  if (smoothing.is_on()) sums.select(0, 2).copy_(wide.sum(1));
  if (part != nullptr) combine_parts(sums, *part);
  losses.copy_(log_sums.to(at::kDouble) - targets.to(at::kDouble));
  if (terms.z_coef > 0.0) losses.add_(terms.z_loss(log_sums.to(at::kDouble)));
  if (smoothing.is_on()) {
    losses.add_(targets.to(at::kDouble), smoothing.factor);
    losses.sub_(sums.select(0, 2).to(at::kDouble), smoothing.of_token());
  }
  if (!in_place || width == 0) return;
  at::Tensor softmax = at::exp(wide - log_sums.unsqueeze(1));
  // expm1 keeps the target's gradient exact where its probability is near 1.
  at::Tensor of_target = at::expm1(targets - log_sums);
  if (terms.z_coef > 0.0) {
    const at::Tensor slope = terms.z_slope(log_sums);
    softmax.add_(softmax * slope.unsqueeze(1));
    of_target.add_(at::exp(targets - log_sums).mul_(slope));
  }
  logits.copy_(softmax);
  const at::Tensor minus_one = of_target.to(logits.scalar_type());
  const at::Tensor kept = logits.gather(1, column).squeeze(1);
  at::Tensor gradients = logits;
  gradients.scatter_(1, column, at::where(is_held, minus_one, kept).unsqueeze(1));
  if (!smoothing.is_on()) return;
  gradients.sub_(smoothing.of_token());
  gradients.scatter_add_(1, column, is_held.to(logits.scalar_type()).mul_(smoothing.factor).unsqueeze(1));
}

// Losses, in float64, of the rows of `logits`; with `in_place`, the rows become their gradients, softmax -
// one-hot. labels: int64 on the device of the logits.
void losses_of(const at::Tensor& logits, const at::Tensor& labels_in, const at::Tensor& losses_in,
               bool in_place, const VocabularyPart* part, const Terms& terms) {
  if (!uses_kernels(logits)) return losses_plain(logits, labels_in, losses_in, in_place, part, terms);
  const Smoothing& smoothing = terms.smoothing;
  const auto* labels = read<int64_t>(labels_in);
  auto* losses = write<double>(losses_in);
  const int64_t count = logits.size(0), width = logits.size(1);
  const int64_t first_token = part == nullptr ? 0 : part->first_token;
  const at::Tensor sums = at::empty({smoothing.is_on() ? 3 : 2, count},
                                    logits.options().dtype(compute_type(logits.scalar_type())));
  dispatch(logits.scalar_type(), [&](auto tag) {
    using T = decltype(tag);
    using C = kernels::ComputeType<T>;
    T* data = write<T>(logits);
    C *log_sums = write<C>(sums), *targets = log_sums + count, *totals = targets + count;
    // The label's logit, or null where it is not among these.
    const auto target_of = [&](int64_t row) {
      const int64_t place = labels[row] - first_token;
      return place >= 0 && place < width ? data + row * width + place : nullptr;
    };
    const auto read_row = [&](int64_t row) {
      log_sums[row] =
          width > 0 ? kernels::log_sum_exp(data + row * width, width) : -std::numeric_limits<C>::infinity();
      const T* target = target_of(row);
      targets[row] = target == nullptr ? C(0) : widened(*target);
      if (!smoothing.is_on()) return;
      double total = 0.0;
      for (int64_t i = 0; i < width; ++i) total += static_cast<double>(widened(data[row * width + i]));
      totals[row] = static_cast<C>(total);
    };
    const auto rounded = [](C value) {
      if constexpr (std::is_same_v<T, kernels::Bf16>) {
        return kernels::to_bf16(value);
      } else {
        return value;
      }
    };
    // Of a row of gradients.
    const auto smooth = [&](T* row, T* target) {
      const C of_token = static_cast<C>(smoothing.of_token());
      for (int64_t i = 0; i < width; ++i) row[i] = rounded(widened(row[i]) - of_token);
      if (target != nullptr) *target = rounded(widened(*target) + static_cast<C>(smoothing.factor));
    };
    const auto finish_row = [&](int64_t row) {
      losses[row] = static_cast<double>(log_sums[row]) - static_cast<double>(targets[row]);
      if (smoothing.is_on()) {
        losses[row] += smoothing.factor * static_cast<double>(targets[row]) -
                       smoothing.of_token() * static_cast<double>(totals[row]);
      }
      if (terms.z_coef > 0.0) losses[row] += terms.z_loss(static_cast<double>(log_sums[row]));
      if (!in_place) return;
      kernels::shifted_exp(data + row * width, log_sums[row], width);
      T* target = target_of(row);
      // expm1 keeps the target's gradient exact where its probability is near 1.
      C of_target = std::expm1(targets[row] - log_sums[row]);
      if (terms.z_coef > 0.0) {
        const C slope = static_cast<C>(terms.z_slope(static_cast<double>(log_sums[row])));
        T* values = data + row * width;
        for (int64_t i = 0; i < width; ++i) values[i] = rounded(widened(values[i]) * (C(1) + slope));
        of_target += slope * std::exp(targets[row] - log_sums[row]);
      }
      if (target != nullptr) *target = rounded(of_target);
      if (smoothing.is_on()) smooth(data + row * width, target);
    };
    at::parallel_for(0, count, rows_per_task(width), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        read_row(row);
        if (part == nullptr) finish_row(row);
      }
    });
    if (part == nullptr) return;
    combine_parts(sums, *part);
    at::parallel_for(0, count, rows_per_task(width), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) finish_row(row);
    });
  });
}

void add_by_source(const at::Tensor& losses_in, const std::vector<int64_t>& positions,
                   const LossSources& sources) {
  const at::Tensor losses = losses_in.to(kHost);
  const auto values = host_span<const double>(losses);
  const auto of_token = host_span<const int64_t>(sources.of_token);
  const auto sums = host_span<double>(sources.losses);
  for (size_t i = 0; i < positions.size(); ++i)
    sums[static_cast<size_t>(of_token[static_cast<size_t>(positions[i])])] += values[i];
}

struct Result {
  at::Tensor loss, grad_hidden, grad_weight;  // gradients: undefined where not wanted
};

Result compute(const at::Tensor& hidden_in, const at::Tensor& weight, const at::Tensor& labels, int64_t chunk,
               const VocabularyPart* part, const LossSources* sources, const LossTerms& loss_terms,
               bool want_hidden, bool want_weight) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  const MemoryScope memory(MemoryCategory::Loss);
  const at::Tensor hidden = hidden_in.contiguous();
  const auto type = hidden.scalar_type(), exact = compute_type(type);
  // The same for the holders of all parts, who go through the chunks together.
  const int64_t vocabulary = part == nullptr ? weight.size(0) : part->vocab_size;
  const Terms terms{{loss_terms.label_smoothing, vocabulary}, loss_terms.z_loss_coef};
  Labelled found = find_labelled(labels, vocabulary);
  const int64_t count = static_cast<int64_t>(found.labels.size());
  const bool all = count == hidden.size(0);
  if (chunk == 0) chunk = linear_cross_entropy_chunk(count, vocabulary, hidden.element_size());

  Result result;
  if (want_hidden) {
    result.grad_hidden =
        all ? at::empty(hidden.sizes(), hidden.options()) : at::zeros(hidden.sizes(), hidden.options());
  }
  // Sums over chunks are kept in at least float32.
  if (want_weight) {
    const MemoryScope of_weight(MemoryCategory::Gradients);
    result.grad_weight = count > 0 ? at::empty(weight.sizes(), weight.options().dtype(exact))
                                   : at::zeros(weight.sizes(), weight.options().dtype(exact));
  }
  const at::Tensor losses = at::empty({count}, hidden.options().dtype(at::kDouble));
  const at::Tensor positions = on_device(found.positions, hidden.device());
  const at::Tensor labels_there = on_device(found.labels, hidden.device());
  at::Tensor buffer = at::empty({std::min(chunk, count), weight.size(0)}, hidden.options());
  for (int64_t begin = 0; begin < count; begin += chunk) {
    const int64_t size = std::min(chunk, count - begin);
    const at::Tensor index = positions.narrow(0, begin, size);
    const at::Tensor rows = all ? hidden.narrow(0, begin, size) : hidden.index_select(0, index);
    at::Tensor logits = buffer.narrow(0, 0, size);
    product_out(logits, rows, weight.t());
    losses_of(logits, labels_there.narrow(0, begin, size), losses.narrow(0, begin, size),
              want_hidden || want_weight, part, terms);
    if (want_hidden && all) {
      product_out(result.grad_hidden.narrow(0, begin, size), logits, weight);
    } else if (want_hidden) {
      result.grad_hidden.index_copy_(0, index, product(logits, weight));
    }
    if (!want_weight) continue;
    begin == 0 ? product_out(result.grad_weight, logits.t(), rows)
               : add_product(result.grad_weight, logits.t(), rows);
  }
  if (sources != nullptr) add_by_source(losses, found.positions, *sources);
  result.loss = sum_in_order(losses).to(exact);
  return result;
}

struct LinearCrossEntropyFunction : torch::autograd::Function<LinearCrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& hidden, const at::Tensor& weight,
                            const at::Tensor& labels, int64_t chunk, const VocabularyPart* part,
                            const LossSources* sources, const LossTerms& terms) {
    Result result = compute(hidden, weight, labels, chunk, part, sources, terms, hidden.requires_grad(),
                            weight.requires_grad());
    ctx->saved_data["grad_hidden"] = result.grad_hidden;
    ctx->saved_data["grad_weight"] = result.grad_weight;
    ctx->saved_data["weight"] = weight;
    return result.loss;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    refuse_double_backward(kName);
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    // Moved out of the graph, scaled in place and given away: no second copy of the size of the weight.
    TESSERA_CHECK_ARGUMENT(ctx->saved_data.count("grad_hidden") != 0,
                           "linear_cross_entropy: backward runs once");
    const auto take = [&](const char* name) {
      at::Tensor gradient = ctx->saved_data[name].toTensor();
      ctx->saved_data.erase(name);
      return gradient;
    };
    at::Tensor grad_hidden = take("grad_hidden"), grad_weight = take("grad_weight");
    if (grad_hidden.defined()) grad_hidden.mul_(grads[0]);
    if (!grad_weight.defined()) return {grad_hidden, grad_weight, {}, {}, {}, {}, {}};
    const MemoryScope memory(MemoryCategory::Gradients);
    const at::Tensor weight = take("weight");
    const auto direct_type = direct_gradient_type(weight);
    if (direct_type && weight.grad().defined()) {
      weight.mutable_grad().addcmul_(grad_weight, grads[0].to(grad_weight.scalar_type()));
      return {grad_hidden, {}, {}, {}, {}, {}, {}};
    }
    grad_weight = grad_weight.mul_(grads[0]).to(direct_type.value_or(weight.scalar_type()));
    if (direct_type) {
      weight.mutable_grad() = grad_weight;
      grad_weight.reset();
    }
    return {grad_hidden, grad_weight, {}, {}, {}, {}, {}};
  }
};

}  // namespace

int64_t linear_cross_entropy_chunk(int64_t positions, int64_t vocabulary, int64_t bytes_per_logit) {
  if (positions <= 0) return 1;
  const int64_t row = std::max<int64_t>(1, vocabulary * bytes_per_logit);
  const int64_t most = std::max({int64_t{1}, kChunkBytes / row, std::min(kGoodRows, kMaxChunkBytes / row)});
  // Chunks of equal size, so that the last one is not a sliver.
  const int64_t chunks = (positions + most - 1) / most;
  return (positions + chunks - 1) / chunks;
}

at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                                int64_t chunk_tokens, const VocabularyPart* part, const LossSources* sources,
                                const LossTerms& terms) {
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
  if (!needs_graph({hidden, weight})) {
    return compute(hidden, weight, labels, chunk_tokens, part, sources, terms, false, false).loss;
  }
  return LinearCrossEntropyFunction::apply(hidden, weight, labels, chunk_tokens, part, sources, terms);
}

}  // namespace tessera::ops
