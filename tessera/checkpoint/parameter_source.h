// Where the values of a model's parameters come from.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "tessera/checkpoint/state_dict_adapter.h"
#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/core/device.h"
#include "tessera/parallel/layout.h"

namespace tessera::checkpoint {

// Values by the model's names of parameters and by boxes, the same whatever the boxes: one rank reads whole
// parameters, many read a tile each. Safe to use from several threads.
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;

  // Whether it has values for the parameter.
  virtual bool holds(const std::string& parameter) const = 0;
  // The type in which it keeps the values of a parameter that it holds; nothing where it makes them, or keeps
  // parts in several types.
  virtual std::optional<DType> stored_dtype(const std::string& parameter) const = 0;
  // Writes `box` of a parameter that it holds into `destination`, a contiguous tensor of the box's size and
  // of a floating type, to which the values are converted. Needs at most 16 MiB beside it.
  virtual void read(const std::string& parameter, const parallel::Box& box,
                    const at::Tensor& destination) const = 0;
};

// The parameters of the adapter's table of which `files` hold all parts. The table is of the whole model:
// reading from one that was made when parameters were cut among ranks already, or by which a file's tensor
// has another shape, is an Error that names the parameter.
std::shared_ptr<const ParameterSource> stored_source(std::shared_ptr<const StoredTensors> files,
                                                     StateDictAdapter adapter);

// The first of several sources that holds a parameter. Reading one that none holds is an Error(Config).
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

// Single process: gives every parameter of the module that `source` holds memory on `device` and its values,
// in the parameter's type; others stay as they are.
void materialize(torch::nn::Module& module, const ParameterSource& source, at::Device device = kHost);

}  // namespace tessera::checkpoint
