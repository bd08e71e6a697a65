#include "tessera/ops/adamw.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/trace.h"
#include "tessera/ops/host.h"
#include "tessera/ops/plain.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

constexpr int64_t kGrain = 16384;
constexpr int64_t kRandom = 1024;  // elements whose random bits are drawn at a time

// Updates elements [begin, end) of tensors with random rounding, whose bits are drawn kRandom at a time.
template <class V, class G, class S>
void update_rounded(const AdamWRounding& rounding, V* value, const G* gradient, S* mean, S* square,
                    int64_t begin, int64_t end, const kernels::AdamWFactors& factors) {
  constexpr bool kOfValue = std::is_same_v<V, kernels::Bf16>;
  std::array<uint16_t, kRandom> of_value, of_mean, of_square;
  const kernels::AdamWNoise noise = {kOfValue ? of_value.data() : nullptr, of_mean.data(), of_square.data()};
  for (int64_t i = begin; i < end;) {
    const int64_t row_end = (i / rounding.numbers.width + 1) * rounding.numbers.width;
    const int64_t last = std::min({row_end, end, i + kRandom}), count = last - i;
    if (kOfValue) rounding.of(rounding.value).draw(i, last, of_value.data());
    rounding.of(rounding.exp_avg).draw(i, last, of_mean.data());
    rounding.of(rounding.exp_avg_sq).draw(i, last, of_square.data());
    kernels::adamw(value + i, gradient + i, mean + i, square + i, count, factors, &noise);
    i = last;
  }
}

// Updates all elements by the host's kernels, for the types V, G and S of value, gradient and states.
template <class V, class G, class S>
void update(const AdamWTensors& tensors, const at::Tensor& gradient, const kernels::AdamWFactors& factors) {
  V* value = write<V>(tensors.value);
  const G* g = read<G>(gradient);
  S *mean = write<S>(tensors.exp_avg), *square = write<S>(tensors.exp_avg_sq);
  at::parallel_for(0, tensors.value.numel(), kGrain, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<S, kernels::Bf16>) {
      if (tensors.rounding)
        return update_rounded(*tensors.rounding, value, g, mean, square, begin, end, factors);
    }
    kernels::adamw(value + begin, g + begin, mean + begin, square + begin, end - begin, factors);
  });
}

template <class V>
void update(const AdamWTensors& tensors, const kernels::AdamWFactors& factors) {
  using kernels::Bf16;
  const at::Tensor gradient = tensors.readable_gradient();
  const bool has_narrow_gradient = gradient.scalar_type() == at::kBFloat16;
  if (tensors.exp_avg.scalar_type() == at::kBFloat16) {
    return has_narrow_gradient ? update<V, Bf16, Bf16>(tensors, gradient, factors)
                               : update<V, V, Bf16>(tensors, gradient, factors);
  }
  return has_narrow_gradient ? update<V, Bf16, V>(tensors, gradient, factors)
                             : update<V, V, V>(tensors, gradient, factors);
}

}  // namespace

kernels::AdamWFactors AdamWUpdate::factors() const {
  const auto t = static_cast<double>(step);
  kernels::AdamWFactors factors{};
  factors.gradient_scale = gradient_scale;
  factors.beta1 = beta1;
  factors.beta2 = beta2;
  factors.epsilon = epsilon;
  factors.decay = 1.0 - learning_rate * weight_decay;
  factors.step_size = learning_rate / (1.0 - std::pow(beta1, t));
  factors.square_correction = 1.0 / std::sqrt(1.0 - std::pow(beta2, t));
  return factors;
}

at::Tensor AdamWTensors::readable_gradient() const {
  const bool is_narrow = gradient.scalar_type() == at::kBFloat16;
  return (is_narrow ? gradient : gradient.to(value.scalar_type())).contiguous();
}

void host::adamw(const std::vector<AdamWTensors>& all, const at::Tensor& device_scale) {
  const double scale = device_scale.defined() ? *read<double>(device_scale) : 1.0;
  if (std::isnan(scale)) return;
  for (const AdamWTensors& tensors : all) {
    if (tensors.value.scalar_type() == at::kHalf) {
      plain::adamw({tensors}, device_scale);
      continue;
    }
    kernels::AdamWFactors factors = tensors.update.factors();
    factors.gradient_scale *= scale;
    dispatch(tensors.value.scalar_type(), [&](auto tag) { update<decltype(tag)>(tensors, factors); });
  }
}

void adamw(const std::vector<AdamWTensors>& all, const at::Tensor& device_scale) {
  const trace::Scope trace_scope("adamw");
  const at::NoGradGuard no_grad;
  for (const AdamWTensors& tensors : all) {
    const auto& [value, gradient, exp_avg, exp_avg_sq, update, rounding] = tensors;
    check_operands("adamw", {&value, &gradient, &exp_avg, &exp_avg_sq, &all.front().value});
    for (const at::Tensor* tensor : {&gradient, &exp_avg, &exp_avg_sq}) {
      TESSERA_CHECK_ARGUMENT(tensor->sizes() == value.sizes(), "adamw: sizes differ");
    }
    const at::ScalarType state_type = exp_avg.scalar_type();
    TESSERA_CHECK_ARGUMENT(value.is_contiguous() && exp_avg.is_contiguous() && exp_avg_sq.is_contiguous(),
                           "adamw: value and states must be dense");
    TESSERA_CHECK_ARGUMENT(exp_avg_sq.scalar_type() == state_type &&
                               (state_type == value.scalar_type() || state_type == at::kBFloat16),
                           "adamw: states must both be of value's type or of bfloat16");
    TESSERA_CHECK_ARGUMENT(
        !rounding || (state_type == at::kBFloat16 && rounding->numbers.of_rows == nullptr &&
                      (value.numel() == 0 || rounding->numbers.width > 0)),
        "adamw: rounding is of states in bfloat16, by rows of elements");
  }
  if (all.empty()) return;
  TESSERA_CHECK_ARGUMENT(
      !device_scale.defined() || (device_scale.dim() == 0 && device_scale.scalar_type() == at::kDouble &&
                                  device_scale.device() == all.front().value.device()),
      "adamw: device_scale must be a float64 scalar on the tensors' device");
  leaves(all.front().value).adamw(all, device_scale);
}

}  // namespace tessera::ops
