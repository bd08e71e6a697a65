// Finds out which parameter belongs to which unit.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace tessera::parallel::detail {

struct UnitPlan {
  struct Parameter {
    at::Tensor tensor;
    std::string name;
    std::vector<std::string> aliases;  // other names of the same tensor
    size_t unit = 0;                   // 0: the root
  };
  // Every tensor once, in the order of named_parameters().
  std::vector<Parameter> parameters;
  // Names of the units for messages, by unit number.
  std::vector<std::string> unit_names;
};

// Makes the plan and changes nothing. Throws Error(Config) for a module that is sharded already, in whole or
// in part, and for units that are not below the root or share a parameter.
UnitPlan plan_units(const torch::nn::Module& root,
                    const std::vector<std::shared_ptr<torch::nn::Module>>& units);

}  // namespace tessera::parallel::detail
