#include "tessera/nn/shared_values.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/core/error.h"

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kShared = "shared";

// Returns the same values as another tensor, which autograd takes for no view.
at::Tensor alias_of(const at::Tensor& value) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  return at::alias(value);
}

void keep(AutogradContext& ctx, SharedValues* shared) {
  ctx.saved_data[kShared] = c10::IValue::make_capsule(c10::intrusive_ptr<SharedValues>::reclaim_copy(shared));
}

c10::intrusive_ptr<SharedValues> kept(AutogradContext& ctx) {
  return c10::static_intrusive_pointer_cast<SharedValues>(ctx.saved_data[kShared].toCapsule());
}

}  // namespace

struct SharedValues::GiveFunction : torch::autograd::Function<GiveFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& through, at::TensorList,
                            SharedValues* shared) {
    keep(*ctx, shared);
    return alias_of(through);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto shared = kept(*ctx);
    variable_list result = {grads[0]};
    for (at::Tensor& gradient : shared->gradients_) result.push_back(std::exchange(gradient, {}));
    result.emplace_back();  // of `shared`
    return result;
  }
};

struct SharedValues::ReadFunction : torch::autograd::Function<ReadFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& through, int64_t first, int64_t count,
                               SharedValues* shared) {
    keep(*ctx, shared);
    ctx->saved_data["first"] = first;
    ctx->set_materialize_grads(false);
    variable_list result = {alias_of(through)};
    for (int64_t i = 0; i < count; ++i)
      result.push_back(alias_of(shared->values_[static_cast<size_t>(first + i)]));
    return result;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto shared = kept(*ctx);
    const auto first = static_cast<size_t>(ctx->saved_data["first"].toInt());
    for (size_t i = 1; i < grads.size(); ++i) {
      at::Tensor& sum = shared->gradients_[first + i - 1];
      if (grads[i].defined()) sum = sum.defined() ? sum + grads[i] : grads[i];
    }
    return {grads[0], {}, {}, {}};
  }
};

at::Tensor SharedValues::give(const at::Tensor& through, const std::vector<at::Tensor>& values) {
  values_.clear();
  for (const at::Tensor& value : values) values_.push_back(value.detach());
  gradients_.resize(values.size());
  // The result requires a gradient if a value does, and so does what readers pass through.
  const bool has_gradient =
      through.requires_grad() ||
      std::ranges::any_of(values, [](const at::Tensor& value) { return value.requires_grad(); });
  if (!at::GradMode::is_enabled() || !has_gradient) return through;
  return GiveFunction::apply(through, at::TensorList(values), this);
}

std::vector<at::Tensor> SharedValues::read(const at::Tensor& through, size_t first, size_t count) {
  TESSERA_ASSERT(first + count <= values_.size(), "values are given before they are read");
  if (at::GradMode::is_enabled() && through.requires_grad()) {
    return ReadFunction::apply(through, static_cast<int64_t>(first), static_cast<int64_t>(count), this);
  }
  std::vector<at::Tensor> result = {through};
  for (size_t i = 0; i < count; ++i) result.push_back(values_[first + i]);
  return result;
}

}  // namespace tessera::nn
