#include "tessera/ops/adamw.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/core/check_argument.h"
#include "tessera/core/trace.h"
#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

constexpr int64_t kGrain = 16384;

// As the kernel, in its order.
void adamw_plain(const at::Tensor& value, const at::Tensor& gradient, const at::Tensor& exp_avg,
                 const at::Tensor& exp_avg_sq, const kernels::AdamWFactors& factors) {
  const at::ScalarType exact = compute_type(value.scalar_type());
  const at::Tensor g = gradient.to(exact) * factors.gradient_scale;
  const at::Tensor old_mean = exp_avg.to(exact);
  const at::Tensor mean = old_mean + (g - old_mean) * (1.0 - factors.beta1);
  const at::Tensor square = exp_avg_sq.to(exact) * factors.beta2 + g * g * (1.0 - factors.beta2);
  const at::Tensor step =
      mean * factors.step_size / (square.sqrt() * factors.square_correction + factors.epsilon);
  exp_avg.copy_(mean);
  exp_avg_sq.copy_(square);
  value.copy_(value.to(exact) * factors.decay - step);
}

}  // namespace

void adamw(const at::Tensor& value, const at::Tensor& gradient_in, const at::Tensor& exp_avg,
           const at::Tensor& exp_avg_sq, const AdamWUpdate& update) {
  const trace::Scope trace_scope("adamw");
  const at::NoGradGuard no_grad;
  const at::ScalarType type = value.scalar_type();
  check_operands("adamw", {&value, &gradient_in, &exp_avg, &exp_avg_sq});
  for (const at::Tensor* tensor : {&gradient_in, &exp_avg, &exp_avg_sq}) {
    TESSERA_CHECK_ARGUMENT(tensor->sizes() == value.sizes(), "adamw: sizes differ");
  }
  for (const at::Tensor* state : {&value, &exp_avg, &exp_avg_sq}) {
    TESSERA_CHECK_ARGUMENT(state->is_contiguous() && state->scalar_type() == type,
                           "adamw: value and states must be dense and of one type");
  }
  const bool is_narrow = gradient_in.scalar_type() == at::kBFloat16;
  const at::Tensor gradient = (is_narrow ? gradient_in : gradient_in.to(type)).contiguous();

  const auto t = static_cast<double>(update.step);
  kernels::AdamWFactors factors{};
  factors.gradient_scale = update.gradient_scale;
  factors.beta1 = update.beta1;
  factors.beta2 = update.beta2;
  factors.epsilon = update.epsilon;
  factors.decay = 1.0 - update.learning_rate * update.weight_decay;
  factors.step_size = update.learning_rate / (1.0 - std::pow(update.beta1, t));
  factors.square_correction = 1.0 / std::sqrt(1.0 - std::pow(update.beta2, t));

  if (!uses_kernels(value)) return adamw_plain(value, gradient, exp_avg, exp_avg_sq, factors);
  dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    T *p = write<T>(value), *m = write<T>(exp_avg), *v = write<T>(exp_avg_sq);
    const auto run = [&](const auto* g) {
      at::parallel_for(0, value.numel(), kGrain, [&](int64_t begin, int64_t end) {
        kernels::adamw(p + begin, g + begin, m + begin, v + begin, end - begin, factors);
      });
    };
    is_narrow ? run(read<kernels::Bf16>(gradient)) : run(read<T>(gradient));
  });
}

}  // namespace tessera::ops
