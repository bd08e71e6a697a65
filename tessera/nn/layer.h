// The base of the layers that a parallel layout can cut.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include "tessera/nn/parameter_role.h"
#include "tessera/ops/activation.h"

namespace tessera::nn {

// Exchanges between ranks around the forward of one layer, whose parameters are then only this rank's part.
// input() and output() run inside autograd, in the forward and again if a hook reruns it in the backward.
// They may be collective: all ranks that share the layer call them in the same order.
class LayerParallel {
 public:
  virtual ~LayerParallel() = default;

  // Returns what the layer reads instead of x. If x has a source that collects gradients, the source of the
  // result must collect them too (ops::change_gradient() gives such a source).
  virtual ops::Activation input(const ops::Activation& x) const { return x; }
  // Returns what the layer gives instead of y.
  virtual at::Tensor output(const at::Tensor& y) const { return y; }
  // Factor for a gradient that every rank computes in full although the ranks' gradients are summed
  // afterwards: 1 / (number of ranks) there, otherwise 1.
  virtual double share() const { return 1.0; }
};

// A module that maps one activation to one tensor. Without a LayerParallel its forward runs nothing but its
// own code.
class Layer : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;

  // Puts `parallel` around the forward; null removes it.
  void set_parallel(std::shared_ptr<const LayerParallel> parallel) { parallel_ = std::move(parallel); }
  const LayerParallel* parallel() const { return parallel_.get(); }

  // Says what the layer's own parameters are for.
  void set_role(ParameterRole role) { role_ = role; }
  ParameterRole role() const { return role_; }

 protected:
  // Returns forward(x) or, with a LayerParallel, output(forward(input(x))).
  template <class F>
  at::Tensor run(const ops::Activation& x, const F& forward) const {
    if (parallel_ == nullptr) return forward(x);
    return parallel_->output(forward(parallel_->input(x)));
  }

 private:
  std::shared_ptr<const LayerParallel> parallel_;
  ParameterRole role_ = ParameterRole::Other;
};

// Registers `child` below `parent` under a name of several components: "router.layer". Modules without code
// of their own, of which only the names matter, are made for those between, unless they are there.
template <class M>
std::shared_ptr<M> register_below(torch::nn::Module& parent, const std::string& name,
                                  const std::shared_ptr<M>& child) {
  const size_t dot = name.find('.');
  if (dot == std::string::npos) return parent.register_module(name, child);
  const std::string first = name.substr(0, dot);
  const auto children = parent.named_children();
  const auto* const found = children.find(first);
  const auto between =
      found != nullptr ? *found : parent.register_module(first, std::make_shared<torch::nn::Module>(first));
  return register_below(*between, name.substr(dot + 1), child);
}

// All layers below `module` by their names in named_modules(), such as "self_attn.q_proj" of a block.
using NamedLayers = std::map<std::string, std::shared_ptr<Layer>>;
NamedLayers named_layers(const torch::nn::Module& module);

// Returns the layer of this name. If there is none, throws Error(Config, "LAYER") that lists the known names.
std::shared_ptr<Layer> find_layer(const NamedLayers& layers, const std::string& name);
std::shared_ptr<Layer> find_layer(const torch::nn::Module& module, const std::string& name);

}  // namespace tessera::nn
