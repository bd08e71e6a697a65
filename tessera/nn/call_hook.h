// Hooks around the forward of a module. Sharding and activation checkpointing reach single-device model code
// through them; a model only has to run its blocks through nn::call().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include "tessera/device/carried_scope.h"

namespace tessera::nn {

// Wraps a module's forward. A hook is kept as a child module named kCallHookName, so it lives as long as its
// module and no global table of hooks is needed.
class CallHook : public torch::nn::Module {
 public:
  using Forward = std::function<at::Tensor(const at::Tensor&)>;
  // Runs `next` on the input, or on a changed input, and returns its output, or a changed one. `next` may be
  // copied and run again later (recomputation in the backward pass).
  virtual at::Tensor run(const at::Tensor& input, const Forward& next) = 0;

  // Returns the type that floating inputs of the module's forward are cast to first; nullopt leaves them as
  // they are.
  virtual std::optional<at::ScalarType> input_type() const;
  // Returns false, so torch::save() of the module leaves the hook out.
  bool is_serializable() const override { return false; }

  // The hook that was put on the module before this one; it runs inside this one.
  std::shared_ptr<CallHook> inner;
};

inline constexpr const char* kCallHookName = "tessera_call_hook";

// Returns the outermost hook of `module`, or null.
std::shared_ptr<CallHook> find_call_hook(const torch::nn::Module& module);
// Returns the input_type() of a module's hooks, of which `hook` is the outermost one; nullopt if it is null.
std::optional<at::ScalarType> input_type_of(const std::shared_ptr<CallHook>& hook);
// Returns `value` as the forward gets it: floating tensors cast to `type`, all else unchanged. Without a type
// nothing is cast.
at::Tensor as_input(const at::Tensor& value, std::optional<at::ScalarType> type);
std::optional<at::Tensor> as_input(const std::optional<at::Tensor>& value,
                                   std::optional<at::ScalarType> type);
std::vector<at::Tensor> as_input(const std::vector<at::Tensor>& value, std::optional<at::ScalarType> type);
template <class T>
const T& as_input(const T& value, std::optional<at::ScalarType>) {
  return value;
}

// A promise about the forwards that begin in the scope: their backward does not read the values of these
// parameters, although it may give them gradients (the table of an embedding; the output projection of a loss
// that makes its gradients in the forward). Hooks may free these parameters after the forward.
class ForwardOnlyScope {
 public:
  explicit ForwardOnlyScope(std::vector<at::Tensor> parameters) : scope_({std::move(parameters)}) {}

  // Returns whether the innermost scope names the parameter.
  static bool names(const at::Tensor& parameter);

 private:
  struct Named {
    std::vector<at::Tensor> parameters;
  };
  CarriedScope<Named> scope_;
};

// Puts `hook` around the module's forward, outside of the hooks that the module already has.
void add_call_hook(torch::nn::Module& module, std::shared_ptr<CallHook> hook);

// Runs `forward` as the forward of `module` on `input`, inside the module's hooks. A hook may run it again in
// the backward pass, so `forward` must capture its data by value. Only `input` is cast to the hooks'
// input_type(). The hook is find_call_hook()'s, which copies the names of all children.
at::Tensor call_hooked(const torch::nn::Module& module, const std::shared_ptr<CallHook>& hook,
                       const at::Tensor& input, const CallHook::Forward& forward);
at::Tensor call_hooked(const torch::nn::Module& module, const at::Tensor& input,
                       const CallHook::Forward& forward);

// Returns module.forward(input, args...), run inside the module's hooks. All tensors among the arguments,
// also those in an optional or a vector, are cast to the hooks' input_type(). The arguments are copied, since
// a hook may run the forward again after this call.
template <class M, class... Args>
at::Tensor call(M& module, const at::Tensor& input, const Args&... args) {
  const auto hook = find_call_hook(module);
  [[maybe_unused]] const auto type = input_type_of(hook);
  return call_hooked(module, hook, input,
                     [&module, ... args = std::decay_t<Args>(as_input(args, type))](const at::Tensor& x) {
                       return module.forward(x, args...);
                     });
}

}  // namespace tessera::nn
