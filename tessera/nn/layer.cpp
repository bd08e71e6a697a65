#include "tessera/nn/layer.h"

#include "tessera/core/error.h"
#include "tessera/core/strings.h"

namespace tessera::nn {

std::shared_ptr<Layer> find_layer(const torch::nn::Module& module, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    const auto layer = std::dynamic_pointer_cast<Layer>(item.value());
    if (layer == nullptr) continue;
    if (item.key() == name) return layer;
    names.push_back(item.key());
  }
  throw Error(ErrorKind::Config, "LAYER", "the block has no layer of this name")
      .got("'" + name + "'")
      .need(join(names, ", "));
}

}  // namespace tessera::nn
