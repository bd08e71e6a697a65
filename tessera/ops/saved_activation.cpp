#include "tessera/ops/saved_activation.h"

#include <utility>

#include <ATen/ATen.h>

namespace tessera::ops {
namespace {

constexpr const char* kStored = "stored_activations";

std::shared_ptr<StoredActivation> store(const at::Tensor& x) {
  ActivationStore* const* const in_force = ActivationStoreScope::current();
  return in_force == nullptr || !x.defined() ? nullptr : (*in_force)->put(x);
}

// The activations of an op that a store has; null for those that stay.
struct Stored : torch::CustomClassHolder {
  std::vector<std::shared_ptr<StoredActivation>> activations;
};

}  // namespace

SavedActivation::SavedActivation(const at::Tensor& x) : stored_(store(x)) {
  if (stored_ == nullptr && x.defined()) here_ = x.detach();
}

at::Tensor SavedActivation::get() const { return stored_ == nullptr ? here_ : stored_->get(); }

void save_activations(torch::autograd::AutogradContext& ctx, const std::vector<at::Tensor>& activations,
                      const std::vector<at::Tensor>& others) {
  torch::autograd::variable_list kept = activations;
  kept.insert(kept.end(), others.begin(), others.end());
  if (ActivationStoreScope::current() != nullptr) {
    auto stored = c10::make_intrusive<Stored>();
    for (size_t i = 0; i < activations.size(); ++i) {
      stored->activations.push_back(store(activations[i]));
      if (stored->activations.back() != nullptr) kept[i].reset();
    }
    ctx.saved_data[kStored] = c10::IValue::make_capsule(std::move(stored));
  }
  ctx.save_for_backward(std::move(kept));
}

std::vector<at::Tensor> take_activations(torch::autograd::AutogradContext& ctx) {
  torch::autograd::variable_list saved = ctx.get_saved_variables();
  const auto found = ctx.saved_data.find(kStored);
  if (found == ctx.saved_data.end()) return saved;
  const auto stored = c10::static_intrusive_pointer_cast<Stored>(found->second.toCapsule());
  for (size_t i = 0; i < stored->activations.size(); ++i) {
    if (stored->activations[i] != nullptr) saved[i] = stored->activations[i]->get();
  }
  ctx.saved_data.erase(found);
  return saved;
}

}  // namespace tessera::ops
