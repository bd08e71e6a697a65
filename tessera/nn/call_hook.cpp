#include "tessera/nn/call_hook.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/trace.h"

namespace tessera::nn {
namespace {

at::Tensor run_hook(const std::shared_ptr<CallHook>& hook, const at::Tensor& input,
                    const CallHook::Forward& forward) {
  if (hook == nullptr) return forward(input);
  return hook->run(
      input, [inner = hook->inner, forward](const at::Tensor& x) { return run_hook(inner, x, forward); });
}

}  // namespace

bool ForwardOnlyScope::names(const at::Tensor& parameter) {
  const Named* named = CarriedScope<Named>::current();
  return named != nullptr && std::any_of(named->parameters.begin(), named->parameters.end(),
                                         [&](const at::Tensor& one) { return one.is_same(parameter); });
}

std::optional<at::ScalarType> CallHook::input_type() const {
  return inner == nullptr ? std::nullopt : inner->input_type();
}

std::optional<at::ScalarType> input_type_of(const std::shared_ptr<CallHook>& hook) {
  return hook == nullptr ? std::nullopt : hook->input_type();
}

at::Tensor as_input(const at::Tensor& value, std::optional<at::ScalarType> type) {
  if (!type || !value.defined() || !value.is_floating_point()) return value;
  return value.to(*type);
}

std::optional<at::Tensor> as_input(const std::optional<at::Tensor>& value,
                                   std::optional<at::ScalarType> type) {
  return value.has_value() ? std::optional(as_input(*value, type)) : std::nullopt;
}

std::vector<at::Tensor> as_input(const std::vector<at::Tensor>& value, std::optional<at::ScalarType> type) {
  std::vector<at::Tensor> cast;
  cast.reserve(value.size());
  for (const at::Tensor& one : value) cast.push_back(as_input(one, type));
  return cast;
}

std::shared_ptr<CallHook> find_call_hook(const torch::nn::Module& module) {
  const auto children = module.named_children();
  const auto* child = children.find(kCallHookName);
  return child == nullptr ? nullptr : std::dynamic_pointer_cast<CallHook>(*child);
}

void add_call_hook(torch::nn::Module& module, std::shared_ptr<CallHook> hook) {
  TESSERA_ASSERT(hook != nullptr && hook->inner == nullptr, "a call hook is added once");
  hook->inner = find_call_hook(module);
  if (hook->inner != nullptr) {
    module.replace_module(kCallHookName, hook);
  } else {
    module.register_module(kCallHookName, hook);
  }
}

at::Tensor call_hooked(const torch::nn::Module& module, const std::shared_ptr<CallHook>& hook,
                       const at::Tensor& input, const CallHook::Forward& forward) {
  const trace::Scope scope(module.name());
  return hook == nullptr ? forward(input) : run_hook(hook, as_input(input, hook->input_type()), forward);
}
at::Tensor call_hooked(const torch::nn::Module& module, const at::Tensor& input,
                       const CallHook::Forward& forward) {
  return call_hooked(module, find_call_hook(module), input, forward);
}

}  // namespace tessera::nn
