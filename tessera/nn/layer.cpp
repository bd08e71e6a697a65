#include "tessera/nn/layer.h"

#include "tessera/core/error.h"
#include "tessera/core/strings.h"

namespace tessera::nn {

NamedLayers named_layers(const torch::nn::Module& module) {
  NamedLayers layers;
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    if (auto layer = std::dynamic_pointer_cast<Layer>(item.value())) layers[item.key()] = std::move(layer);
  }
  return layers;
}

std::shared_ptr<Layer> find_layer(const NamedLayers& layers, const std::string& name) {
  const auto found = layers.find(name);
  if (found != layers.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, layer] : layers) names.push_back(known);
  throw Error(ErrorKind::Config, "LAYER", "the block has no layer of this name")
      .got("'" + name + "'")
      .need(join(names, ", "));
}

std::shared_ptr<Layer> find_layer(const torch::nn::Module& module, const std::string& name) {
  return find_layer(named_layers(module), name);
}

}  // namespace tessera::nn
