// Random initial values that do not depend on how a parameter is cut.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/nn/module.h>

#include "tessera/checkpoint/parameter_source.h"
#include "tessera/nn/initial_value.h"

namespace tessera::checkpoint {

// Fills `destination`, a contiguous tensor of the box's size and of a floating type, with the initial values
// in `box` of a parameter `name` of this shape. Every element is a function of the seed, the name and the
// element's index in the whole parameter.
void fill_box(const at::Tensor& destination, const std::string& name, const std::vector<int64_t>& shape,
              const parallel::Box& box, const nn::InitialValue& value, uint64_t seed);

// Gives the initial values that the modules of a tree define for their parameters (nn::HasInitialValues). It
// holds no parameter of a module that defines none.
class RandomSource : public ParameterSource {
 public:
  // Copies names and shapes. The shapes must be the global ones, so it must be made before any sharding.
  // `standard_deviation` is the unit in which InitialValue::normal() gives its multiple.
  RandomSource(const torch::nn::Module& root, double standard_deviation, uint64_t seed);

  bool holds(const std::string& parameter) const override { return entries_.count(parameter) > 0; }
  std::optional<DType> stored_dtype(const std::string&) const override { return std::nullopt; }
  void read(const std::string& parameter, const parallel::Box& box,
            const at::Tensor& destination) const override;

 private:
  struct Entry {
    std::vector<int64_t> shape;
    nn::InitialValue value;
  };
  std::unordered_map<std::string, Entry> entries_;
  uint64_t seed_;
};

}  // namespace tessera::checkpoint
