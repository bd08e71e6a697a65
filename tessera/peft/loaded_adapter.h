// An adapter that is loaded beside a base model, whose layers run with it and without it by turns.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "tessera/device/device.h"
#include "tessera/nn/linear.h"
#include "tessera/peft/adapter_files.h"

namespace tessera::peft {

class LoadedAdapter {
 public:
  // Reads the adapter of a folder onto `device`. `model` is whole, has its own values already and no adapter,
  // and has none afterwards. Throws what load_adapter() throws, and Error(Model, "ADAPTER") for an adapter
  // that changes more than layers: rows before a text, rows of tokens, modules that are trained whole, tables
  // of the base, and the parameters that hold all experts of a layer.
  LoadedAdapter(torch::nn::Module& model, const std::string& folder, const TiedModules& tied,
                at::Device device);

  // A layer, and what the adapter puts on it.
  struct Part {
    std::string layer_name;
    std::shared_ptr<nn::Linear> layer;
    std::shared_ptr<nn::LinearAdapter> adapter;
  };
  const std::vector<Part>& parts() const { return parts_; }

  // Puts the adapter on the layers, and takes it off them again. With it on, the model is to the last bit the
  // one that load_adapter() makes.
  void put_on() const;
  void take_off() const;

 private:
  std::vector<Part> parts_;
};

}  // namespace tessera::peft
