#include "tessera/ops/cuda/aten_leaves.h"

#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/ops/cuda/attention_kernel.h"
#include "tessera/ops/cuda/flash_attention.h"
#include "tessera/ops/cuda/lt_product.h"
#include "tessera/ops/plain.h"
#include "tessera/ops/support.h"

namespace tessera::ops::cuda {
namespace {

// Multiplies as Leaves::multiply says. LibTorch's products with a float32 result take bfloat16 operands
// without rounding their sums; CUDA alone has them.
void multiply(const at::Tensor& sum_in, const at::Tensor& a, const at::Tensor& b, const MoreFactors& more,
              bool adds) {
  at::Tensor sum = sum_in;
  if (!sum.is_cuda() || sum.scalar_type() == a.scalar_type() || sum.scalar_type() != at::kFloat ||
      a.scalar_type() == at::kDouble) {
    plain::multiply(sum, a, b, {}, adds);
  } else if (adds) {
    at::addmm_out(sum, sum, a, b, at::kFloat);
  } else {
    at::mm_out(sum, a, b, at::kFloat);
  }
  if (more.a.defined()) multiply(sum, more.a, more.b, {}, true);
}

void multiply_e4m3(const at::Tensor& sum, const E4m3Matrix& a, const E4m3Matrix& b, bool adds) {
  has_e4m3_units(sum.device()) ? scaled_product(sum, a, b, adds) : plain::multiply_e4m3(sum, a, b, adds);
}

// LibTorch's grouped product takes the groups' ends from the device.
at::Tensor grouped_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends) {
  return at::_grouped_mm(a, b, ends);
}

// Tells whether LibTorch's fused norm applies: it has one type for x and weight. It rounds its result once,
// whereas the plain formula rounds after each of two products.
bool has_fused_norm(const at::Tensor& x, const at::Tensor& weight) {
  return x.scalar_type() == weight.scalar_type();
}

NormedRows rms_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight, double eps) {
  if (!has_fused_norm(x, weight)) return plain::rms_norm(x, delta, weight, eps);
  const at::Tensor residual = delta.defined() ? x + delta : x;
  auto [y, inverse_rms] = at::_fused_rms_norm(residual, weight.sizes(), weight, eps);
  return {residual, y, inverse_rms};
}

at::Tensor rms_norm_again(const at::Tensor& residual, const at::Tensor& weight, const at::Tensor& inverse_rms,
                          double eps) {
  if (!has_fused_norm(residual, weight)) return plain::rms_norm_again(residual, weight, inverse_rms, eps);
  // There is no call that takes inverse_rms, so it is computed again, to the same bits.
  return std::get<0>(at::_fused_rms_norm(residual, weight.sizes(), weight, eps));
}

std::pair<at::Tensor, at::Tensor> rms_norm_backward(const at::Tensor& grad, const at::Tensor& grad_residual,
                                                    const at::Tensor& x, const at::Tensor& weight,
                                                    const at::Tensor& inverse_rms, bool want_x,
                                                    bool want_weight) {
  if (!x.is_cuda() || !has_fused_norm(x, weight)) {
    return plain::rms_norm_backward(grad, grad_residual, x, weight, inverse_rms, want_x, want_weight);
  }
  auto [grad_x, grad_weight] = at::_fused_rms_norm_backward(grad.contiguous(), x, weight.sizes(), inverse_rms,
                                                            weight, {want_x, want_weight});
  if (want_x && grad_residual.defined()) grad_x.add_(grad_residual);
  return {grad_x, grad_weight};
}

bool takes_flash(const at::Tensor& q, const AttentionFormula& formula) {
  return q.is_cuda() && formula.dropout.probability == 0.0 &&
         flash_computes(q.scalar_type(), q.size(2), formula);
}

AttentionResult attend_spans(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::vector<AttentionSpan>& spans, const AttentionFormula& formula) {
  return takes_flash(q, formula) ? attend_by(attention_kernel(), q, k, v, spans, formula)
                                 : plain::attend_spans(q, k, v, spans, formula);
}

AttentionGradients attend_spans_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const AttentionResult& result,
                                         const std::vector<AttentionSpan>& spans,
                                         const AttentionFormula& formula) {
  return takes_flash(q, formula)
             ? differentiate_by(attention_kernel(), grad_out, q, k, v, result, spans, formula)
             : plain::attend_spans_backward(grad_out, q, k, v, result, spans, formula);
}

at::Tensor attend_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const at::Tensor& lengths, const AttentionFormula& formula) {
  return takes_flash(q, formula) && !formula.sinks.defined() ? flash_attend_rows(q, k, v, lengths, formula)
                                                             : plain::attend_rows(q, k, v, lengths, formula);
}

// Does what plain::cross_entropy() does with one tensor of the logits' size in float32 instead of four.
// Losses with other terms, or over parts of the vocabulary, take the plain formula.
void cross_entropy(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& losses,
                   bool in_place, const LossFormula& formula) {
  if (!formula.is_cross_entropy() || logits.size(1) == 0) {
    return plain::cross_entropy(logits, labels, losses, in_place, formula);
  }
  const at::Tensor column = labels.unsqueeze(1);
  at::Tensor gradients = logits;
  at::Tensor log_softmax =
      logits.to(compute_type(logits.scalar_type()), /*non_blocking=*/false, /*copy=*/true);
  at::_log_softmax_out(log_softmax, log_softmax, 1, /*half_to_float=*/false);
  const at::Tensor of_label = log_softmax.gather(1, column);
  losses.copy_(of_label.squeeze(1).neg());
  if (!in_place) return;
  at::exp_out(gradients, log_softmax);
  // expm1 keeps the label's gradient exact if its probability is near 1.
  gradients.scatter_(1, column, at::expm1(of_label).to(gradients.scalar_type()));
}

// One call of LibTorch's fused update, which has one element type, rate, decay and step for all of its
// tensors.
struct UpdateCall {
  std::vector<at::Tensor> values, gradients, exp_avgs, exp_avg_sqs, steps;
  int64_t elements = 0;

  void add(const AdamWTensors& tensors) {
    const auto options = tensors.value.options().dtype(at::kFloat);
    steps.push_back(steps.empty() ? at::full({}, static_cast<double>(tensors.update.step), options)
                                  : steps.front());
    values.push_back(tensors.value);
    gradients.push_back(tensors.readable_gradient().to(tensors.value.scalar_type()));
    exp_avgs.push_back(tensors.exp_avg);
    exp_avg_sqs.push_back(tensors.exp_avg_sq);
    elements += tensors.value.numel();
  }
  // Updates all tensors, and forgets them. The scale of the gradients and whether it is NaN stay on the
  // device: LibTorch takes them as the divisor and the flag that loss scaling would give.
  void run(const AdamWUpdate& update, const at::Tensor& device_scale) {
    if (values.empty()) return;
    std::optional<at::Tensor> divisor;  // divides the gradients, which it changes in place
    std::optional<at::Tensor> is_left;  // 1: nothing is changed
    if (device_scale.defined()) {
      divisor = (device_scale * update.gradient_scale).reciprocal().to(at::kFloat);
      is_left = device_scale.isnan().to(at::kFloat);
    } else if (update.gradient_scale != 1.0) {
      divisor = at::full({}, 1.0 / update.gradient_scale, values.front().options().dtype(at::kFloat));
    }
    at::_fused_adamw_(values, gradients, exp_avgs, exp_avg_sqs, /*max_exp_avg_sqs=*/{}, steps,
                      update.learning_rate, update.beta1, update.beta2, update.weight_decay, update.epsilon,
                      /*amsgrad=*/false, /*maximize=*/false, divisor, is_left);
    *this = UpdateCall();
  }
};

void adamw(const std::vector<AdamWTensors>& all, const at::Tensor& device_scale) {
  // The fused update needs gradients of the values' type: they are converted for this many elements at a
  // time.
  constexpr int64_t kWidened = int64_t{1} << 27;
  using Key = std::tuple<at::ScalarType, int64_t, double, double>;
  // Tensors are gathered by what a call has in common: type, step, learning rate and weight decay. The betas,
  // epsilon and the scale are the optimizer's, which are equal for all.
  std::map<Key, std::pair<AdamWUpdate, UpdateCall>> calls;
  for (const AdamWTensors& tensors : all) {
    const AdamWUpdate& update = tensors.update;
    const at::ScalarType type = tensors.value.scalar_type();
    // These go by the plain formula: the divisor is float32, zero has no inverse, and states must have the
    // values' type and be rounded to nearest.
    if (type == at::kDouble || update.gradient_scale == 0.0 || tensors.exp_avg.scalar_type() != type ||
        tensors.rounding) {
      plain::adamw({tensors}, device_scale);
      continue;
    }
    auto& [common, call] = calls[{type, update.step, update.learning_rate, update.weight_decay}];
    common = update;
    call.add(tensors);
    if (call.elements >= kWidened) call.run(common, device_scale);
  }
  for (auto& [key, update_and_call] : calls) update_and_call.second.run(update_and_call.first, device_scale);
}

std::vector<at::Tensor> sums_of_squares(const std::vector<at::Tensor>& all) {
  // One call takes tensors of one type.
  std::map<at::ScalarType, std::vector<size_t>> places;
  for (size_t i = 0; i < all.size(); ++i) places[all[i].scalar_type()].push_back(i);
  std::vector<at::Tensor> sums(all.size());
  for (const auto& [type, of_type] : places) {
    std::vector<at::Tensor> tensors;
    for (const size_t place : of_type) tensors.push_back(all[place]);
    const auto squares = at::stack(at::_foreach_norm(tensors, 2, at::kDouble)).square_().unbind();
    for (size_t i = 0; i < of_type.size(); ++i) sums[of_type[i]] = squares[i];
  }
  return sums;
}

}  // namespace

// LibTorch's call takes a by rows and b by columns. It writes its result and does not add, so that a sum
// costs one more pass unless cuBLASLt adds (lt_product.h).
void scaled_product(const at::Tensor& sum, const E4m3Matrix& a, const E4m3Matrix& b, bool adds) {
  if (adds && sum.is_cuda() && lt_products() != nullptr && lt_products()->add_scaled(sum, a, b)) return;
  at::Tensor made = adds ? at::empty_like(sum) : sum;
  at::_scaled_mm_out(made, a.codes, b.codes.t(), a.scale, b.scale, /*bias=*/{}, /*scale_result=*/{},
                     made.scalar_type(), /*use_fast_accum=*/false);
  if (adds) sum.add_(made);
}

const Leaves& aten_leaves() {
  static const Leaves kLeaves = [] {
    Leaves made = plain_leaves();
    made.multiply = multiply;
    made.multiply_e4m3 = multiply_e4m3;
    made.grouped_product = grouped_product;
    // The op then makes the layer of products, each added in place (lora.cpp), and not of one tensor per
    // step.
    made.lora_linear = nullptr;
    made.rms_norm = rms_norm;
    made.rms_norm_again = rms_norm_again;
    made.rms_norm_backward = rms_norm_backward;
    made.attend_spans = attend_spans;
    made.attend_spans_backward = attend_spans_backward;
    // The op then uses attend_spans(), whose kernels take all documents in few calls.
    made.document_attention = nullptr;
    made.attend_rows = attend_rows;
    made.cross_entropy = cross_entropy;
    // These sizes let 4096 rows of a vocabulary of 150,000 in bfloat16 be held at a time, which keep a
    // product busy.
    made.logit_chunks = {int64_t{256} << 20, int64_t{1280} << 20, 4096};
    made.adamw = adamw;
    made.sums_of_squares = sums_of_squares;
    return made;
  }();
  return kLeaves;
}

}  // namespace tessera::ops::cuda
