// Sources of the values that a model's parameters start with.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "tessera/checkpoint/state_dict_adapter.h"
#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/device/device.h"
#include "tessera/parallel/layout.h"

namespace tessera::checkpoint {

// Gives the values in any box of a parameter, which it knows by the model's name for it. An element's value
// does not depend on the box: one rank reads whole parameters, many ranks read a tile each. Safe to use from
// several threads.
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;

  // Tells whether it has values for the parameter.
  virtual bool holds(const std::string& parameter) const = 0;
  // Returns the type in which it keeps the values of a parameter that it holds; nothing if it computes them,
  // or keeps parts of them in several types.
  virtual std::optional<DType> stored_dtype(const std::string& parameter) const = 0;
  // Writes the values in `box` of a parameter that it holds into `destination`, a contiguous tensor of the
  // box's size and of a floating type, to which the values are converted. Needs at most 16 MiB of memory
  // beside the destination.
  virtual void read(const std::string& parameter, const parallel::Box& box,
                    const at::Tensor& destination) const = 0;
};

// Returns a source of those parameters in the adapter's table whose parts are all in `files`. The table must
// have been made of the whole model: reading throws an Error that names the parameter if the table was made
// after parameters had been cut among ranks, or if a file's tensor has another shape than the table says.
std::shared_ptr<const ParameterSource> stored_source(std::shared_ptr<const StoredTensors> files,
                                                     StateDictAdapter adapter);

// Takes each parameter from the first of several sources that holds it. Reading a parameter that none holds
// throws Error(Config).
class SourceList : public ParameterSource {
 public:
  explicit SourceList(std::vector<std::shared_ptr<const ParameterSource>> sources)
      : sources_(std::move(sources)) {}

  bool holds(const std::string& parameter) const override { return find(parameter) != nullptr; }
  std::optional<DType> stored_dtype(const std::string& parameter) const override;
  void read(const std::string& parameter, const parallel::Box& box,
            const at::Tensor& destination) const override;

 private:
  const ParameterSource* find(const std::string& parameter) const;
  const ParameterSource& require(const std::string& parameter) const;

  std::vector<std::shared_ptr<const ParameterSource>> sources_;
};

// Gives every parameter of the module that `source` holds memory on `device` and its values, in the
// parameter's type; others stay as they are. For a single process.
void materialize(torch::nn::Module& module, const ParameterSource& source, at::Device device = kHost);

}  // namespace tessera::checkpoint
