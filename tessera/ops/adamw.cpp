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

}  // namespace

void adamw(const at::Tensor& value, const at::Tensor& gradient_in, const at::Tensor& exp_avg,
           const at::Tensor& exp_avg_sq, const AdamWUpdate& update) {
  const trace::Scope trace_scope("adamw");
  const at::NoGradGuard no_grad;
  const at::ScalarType type = value.scalar_type();
  for (const at::Tensor* tensor : {&value, &gradient_in, &exp_avg, &exp_avg_sq}) {
    check_operand(*tensor, "adamw");
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
