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

// Fills `destination`, contiguous on the CPU and of a floating type, with `box` of a parameter of this shape.
// Every element is a function of the seed, the parameter's name and the element's index in the whole.
void fill_box(const at::Tensor& destination, const std::string& name, const std::vector<int64_t>& shape,
              const parallel::Box& box, const nn::InitialValue& value, uint64_t seed);

// What the modules of a tree say that their parameters start from (nn::HasInitialValues); holds no parameter
// of a module that does not say it.
class RandomSource : public ParameterSource {
 public:
  // Takes down names and shapes: the shapes must be the global ones, before any sharding.
  // `standard_deviation` is what InitialValue::normal() counts in.
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
