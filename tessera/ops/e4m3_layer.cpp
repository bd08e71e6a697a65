#include "tessera/ops/e4m3_layer.h"

#include "tessera/ops/support.h"

namespace tessera::ops {
namespace {

constexpr const char *kX = "x_scale", *kWeight = "weight_scale";

}  // namespace

ForwardOperands::ForwardOperands(const at::Tensor& x, const at::Tensor& weight) {
  if (product_type() != ProductType::E4m3) return;
  rows_ = flatten_rows(x);
  scope_.emplace(ProductType::E4m3, std::initializer_list<E4m3Operand*>{
                                        &x_.emplace(rows_, known_e4m3_scale(x)), &weight_.emplace(weight)});
}

void ForwardOperands::keep(torch::autograd::AutogradContext& ctx,
                           const c10::intrusive_ptr<ActivationSource>& source) const {
  if (!scope_) return;
  // An enclosing scope may hold x: its operand then made the cast, and has the scale.
  const at::Tensor& x = E4m3OperandsScope::holding(rows_)->scale();
  if (x.defined() && source != nullptr) source->keep_scale(x);
  if (x.defined() && source == nullptr) ctx.saved_data[kX] = x;
  if (weight_->scale().defined()) ctx.saved_data[kWeight] = weight_->scale();
}

LayerScales kept_scales(torch::autograd::AutogradContext& ctx) {
  const auto kept = [&](const char* name) {
    const auto found = ctx.saved_data.find(name);
    return found == ctx.saved_data.end() ? at::Tensor() : found->second.toTensor();
  };
  return {kept(kX), kept(kWeight)};
}

}  // namespace tessera::ops
