// Finds the stored tensors of parameters whose layers say in which form files hold them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "tessera/checkpoint/state_dict_adapter.h"
#include "tessera/nn/linear.h"

namespace tessera::checkpoint {

// Makes the part one of `count` that lie along a new first dim of the tensor `tensor`.
void put_in_stack(StoredPart& part, int64_t index, int64_t count, const std::string& tensor);

// Collects from the Linears of a model, and from their adapters, the form in which files of its family hold
// their parameters: whether a matrix is stored transposed, in which order its outputs are stored, and whether
// it is one of several in a tensor; and from its short convolutions the order of their channels. Bare
// values are stored under the name of their layer, the scales of a head norm by option head by head, and the
// constants of an XIELU without a dim. The shapes of the model must be the global ones, so it must be made
// before any sharding. The model must outlive it.
class LayerParts {
 public:
  explicit LayerParts(const torch::nn::Module& model);

  // Returns the stored parts that make up a parameter of the model; files hold it under the name `stored` or
  // one of `aliases`. A parameter of no Linear is stored as it is.
  std::vector<StoredPart> of(const at::Tensor& parameter, const std::string& stored,
                             std::vector<std::string> aliases = {}) const;

 private:
  struct Form {
    bool is_transposed = false;
    std::optional<int64_t> out_dim;  // dim of the parameter that runs along the layer's outputs
    const std::vector<nn::StoredRows>* rows = nullptr;  // the order of the outputs in files
    const nn::Linear* layer = nullptr;
    std::string stack = {};  // the stored tensor of several matrices, or rows, in which the layer's is one
    bool is_bare = false;    // stored without the last component of its name
    bool is_number = false;  // stored without a dim
    // If not empty, each head's run of `head_dim` elements is stored apart, in a list of this name.
    std::string list = {};
    int64_t head_dim = 0;
  };
  std::unordered_map<const c10::TensorImpl*, Form> forms_;
};

}  // namespace tessera::checkpoint
