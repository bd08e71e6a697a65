#include "tessera/ops/adamw.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/trace.h"
#include "tessera/ops/host.h"
#include "tessera/ops/plain.h"
#include "tessera/ops/support.h"

namespace tessera::ops {

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
  constexpr int64_t kGrain = 16384;
  const double scale = device_scale.defined() ? *read<double>(device_scale) : 1.0;
  if (std::isnan(scale)) return;
  for (const AdamWTensors& tensors : all) {
    if (tensors.value.scalar_type() == at::kHalf) {
      plain::adamw({tensors}, device_scale);
      continue;
    }
    const at::Tensor gradient = tensors.readable_gradient();
    kernels::AdamWFactors factors = tensors.update.factors();
    factors.gradient_scale *= scale;
    dispatch(tensors.value.scalar_type(), [&](auto tag) {
      using T = decltype(tag);
      T *p = write<T>(tensors.value), *m = write<T>(tensors.exp_avg), *v = write<T>(tensors.exp_avg_sq);
      const auto run = [&](const auto* g) {
        at::parallel_for(0, tensors.value.numel(), kGrain, [&](int64_t begin, int64_t end) {
          kernels::adamw(p + begin, g + begin, m + begin, v + begin, end - begin, factors);
        });
      };
      gradient.scalar_type() == at::kBFloat16 ? run(read<kernels::Bf16>(gradient)) : run(read<T>(gradient));
    });
  }
}

void adamw(const std::vector<AdamWTensors>& all, const at::Tensor& device_scale) {
  const trace::Scope trace_scope("adamw");
  const at::NoGradGuard no_grad;
  for (const AdamWTensors& tensors : all) {
    const auto& [value, gradient, exp_avg, exp_avg_sq, update] = tensors;
    check_operands("adamw", {&value, &gradient, &exp_avg, &exp_avg_sq, &all.front().value});
    for (const at::Tensor* tensor : {&gradient, &exp_avg, &exp_avg_sq}) {
      TESSERA_CHECK_ARGUMENT(tensor->sizes() == value.sizes(), "adamw: sizes differ");
    }
    for (const at::Tensor* state : {&value, &exp_avg, &exp_avg_sq}) {
      TESSERA_CHECK_ARGUMENT(state->is_contiguous() && state->scalar_type() == value.scalar_type(),
                             "adamw: value and states must be dense and of one type");
    }
  }
  if (all.empty()) return;
  TESSERA_CHECK_ARGUMENT(
      !device_scale.defined() || (device_scale.dim() == 0 && device_scale.scalar_type() == at::kDouble &&
                                  device_scale.device() == all.front().value.device()),
      "adamw: device_scale must be a float64 scalar on the tensors' device");
  leaves(all.front().value).adamw(all, device_scale);
}

}  // namespace tessera::ops
