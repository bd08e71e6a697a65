// Where files hold the parameters of layers that say so themselves.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "tessera/checkpoint/state_dict_adapter.h"
#include "tessera/nn/linear.h"

namespace tessera::checkpoint {

// What the Linears of a model, adapters among them, say of the files of its family: which matrices these hold
// transposed, and in which order the outputs. Shapes must be the global ones: make it before any sharding.
// The model outlives it.
class LayerParts {
 public:
  explicit LayerParts(const torch::nn::Module& model);

  // Of a parameter of the model that files hold as `stored` or one of `aliases`.
  std::vector<StoredPart> of(const at::Tensor& parameter, const std::string& stored,
                             std::vector<std::string> aliases = {}) const;

 private:
  struct Form {
    bool is_transposed = false;
    std::optional<int64_t> out_dim;  // of the parameter, along the layer's outputs
    const nn::Linear* layer = nullptr;
  };
  std::unordered_map<const c10::TensorImpl*, Form> forms_;
};

}  // namespace tessera::checkpoint
