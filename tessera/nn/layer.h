// The base of the layers that a parallel layout can cut.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include "tessera/ops/activation.h"

namespace tessera::nn {

// What a parallel layout does around the forward of one layer, whose parameters are then this rank's part.
// Both run inside autograd, in the forward and where a hook runs it again, and may be collective: all ranks
// that share the layer call them in one order.
class LayerParallel {
 public:
  virtual ~LayerParallel() = default;

  // What the layer reads in place of x. Of an Activation with a source that collects gradients, the source of
  // the result takes them (ops::change_gradient() is one that does).
  virtual ops::Activation input(const ops::Activation& x) const { return x; }
  // What the layer gives in place of y.
  virtual at::Tensor output(const at::Tensor& y) const { return y; }
  // What each rank puts into a gradient that all make in full, where the ranks' gradients are summed.
  virtual double share() const { return 1.0; }
};

// A module from one activation to one tensor. With nothing put in, its forward is that of its own code.
class Layer : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;

  // Null takes it out.
  void set_parallel(std::shared_ptr<const LayerParallel> parallel) { parallel_ = std::move(parallel); }
  const LayerParallel* parallel() const { return parallel_.get(); }

 protected:
  // forward(x), or output(forward(input(x))).
  template <class F>
  at::Tensor run(const ops::Activation& x, const F& forward) const {
    if (parallel_ == nullptr) return forward(x);
    return parallel_->output(forward(parallel_->input(x)));
  }

 private:
  std::shared_ptr<const LayerParallel> parallel_;
};

// The layers that named_modules() of `module` lists, for instance "self_attn.q_proj" of a block.
using NamedLayers = std::map<std::string, std::shared_ptr<Layer>>;
NamedLayers named_layers(const torch::nn::Module& module);

// The layer of this name. Throws Error(Config, "LAYER") with the names that there are.
std::shared_ptr<Layer> find_layer(const NamedLayers& layers, const std::string& name);
std::shared_ptr<Layer> find_layer(const torch::nn::Module& module, const std::string& name);

}  // namespace tessera::nn
