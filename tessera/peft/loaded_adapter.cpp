#include "tessera/peft/loaded_adapter.h"

#include "tessera/core/error.h"
#include "tessera/nn/layer.h"
#include "tessera/peft/combine.h"

namespace tessera::peft {
namespace {

Error refusal(const AdapterConfig& config, const std::string& what) {
  return Error(ErrorKind::Model, "ADAPTER", "the adapter cannot be loaded beside others: " + what)
      .at(config.source_file)
      .hint("use it alone, or merge it into its base with tessera merge");
}

}  // namespace

LoadedAdapter::LoadedAdapter(torch::nn::Module& model, const std::string& folder, const TiedModules& tied,
                             at::Device device) {
  const AdapterConfig config = read_adapter_config(folder);
  if (const std::string why = why_beyond_layers(config.options); !why.empty()) throw refusal(config, why);
  const auto files = std::make_shared<const io::ModelFiles>(open_adapter(folder));
  const LoraTargets targets = apply_adapter(model, config, *files, tied);
  if (!targets.carried.empty())
    throw refusal(config, "it brings a table of the base, '" + targets.carried.front().name + "'");
  checkpoint::materialize(model, *adapter_source(model, targets, files), device);
  const nn::NamedLayers layers = nn::named_layers(model);
  for (const std::string& name : targets.adapted) {
    const auto layer = std::dynamic_pointer_cast<nn::Linear>(nn::find_layer(layers, name));
    parts_.push_back({name, layer, layer->take_adapter()});
  }
}

void LoadedAdapter::put_on() const {
  for (const Part& part : parts_) part.layer->set_adapter(part.adapter, part.layer_name);
}

void LoadedAdapter::take_off() const {
  for (const Part& part : parts_) part.layer->take_adapter();
}

}  // namespace tessera::peft
