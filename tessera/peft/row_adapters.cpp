#include "tessera/peft/row_adapters.h"

#include <map>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/materialize.h"
#include "tessera/ops/linear.h"
#include "tessera/peft/adapter_files.h"
#include "tessera/peft/combine.h"
#include "tessera/peft/loaded_adapter.h"
#include "tessera/peft/lora.h"

namespace tessera::peft {
namespace {

Error refusal(const AdapterConfig& config, const std::string& what) {
  return Error(ErrorKind::Model, "ADAPTER", "the adapter cannot be chosen by requests: " + what)
      .at(config.source_file)
      .hint("serve it alone, or merge it into its base with tessera merge and serve the result");
}

// The adapters of one layer.
class RowAdapter : public nn::LinearAdapter {
 public:
  explicit RowAdapter(std::shared_ptr<const nn::AdapterRows> rows) : rows_(std::move(rows)) {}

  void add(int64_t number, std::shared_ptr<LoraAdapter> adapter) {
    adapters_.emplace(number, std::move(adapter));
  }

  at::Tensor forward(const ops::Activation& x, const ops::Weight& weight,
                     const std::optional<at::Tensor>& bias,
                     const c10::intrusive_ptr<ops::RowExchange>& output) override {
    at::Tensor y = ops::linear(x, weight, bias, output);
    if (rows_->groups().empty()) return y;
    TESSERA_ASSERT(x.value().dim() == 2 && x.value().size(0) == rows_->num_rows(),
                   "a layer with adapters sees all rows of a pass");
    for (const nn::AdapterRows::Group& group : rows_->groups()) {
      const auto found = adapters_.find(group.adapter);
      if (found == adapters_.end()) continue;
      y.index_add_(0, group.rows, found->second->change(x.value().index_select(0, group.rows)));
    }
    return y;
  }

  std::vector<nn::AdapterParameter> adapter_parameters() const override { return {}; }
  void set_input_part(int64_t, int64_t, const ops::ChangeInPlace&) override {
    TESSERA_ASSERT(false, "adapters of rows come after a layer is cut");
  }

 private:
  const std::shared_ptr<const nn::AdapterRows> rows_;
  std::map<int64_t, std::shared_ptr<LoraAdapter>> adapters_;
};

// Keeps the part of an adapter of `whole` that belongs to the layer, which has a part of its inputs or of its
// outputs.
void keep_part(LoraAdapter& adapter, const nn::Linear& layer, const nn::Linear& whole) {
  std::vector<nn::AdapterParameter> parameters = adapter.adapter_parameters();
  for (nn::AdapterParameter& parameter : parameters) {
    at::Tensor part = parameter.tensor.detach();
    if (parameter.in_dim) part = part.narrow(*parameter.in_dim, layer.first_input(), layer.in_features());
    if (parameter.out_dim) part = part.narrow(*parameter.out_dim, layer.first_output(), layer.out_features());
    nn::materialize(parameter.tensor, part.clone());
  }
  if (layer.in_features() < whole.in_features())
    adapter.set_input_part(layer.first_input(), whole.in_features(), nullptr);
}

}  // namespace

std::shared_ptr<nn::AdapterRows> apply_row_adapters(torch::nn::Module& model, torch::nn::Module& whole,
                                                    const std::vector<std::string>& folders,
                                                    const TiedModules& tied, at::Device device) {
  auto rows = std::make_shared<nn::AdapterRows>();
  const nn::NamedLayers here = nn::named_layers(model);
  std::map<std::string, std::pair<std::shared_ptr<nn::Linear>, std::shared_ptr<RowAdapter>>> layers;
  int64_t number = nn::AdapterRows::kNoAdapter;
  for (const std::string& folder : folders) {
    ++number;
    const AdapterConfig config = read_adapter_config(folder);
    if (const std::string why = why_no_sum(config.options); !why.empty()) throw refusal(config, why);
    const LoadedAdapter loaded(whole, folder, tied, device);
    for (const LoadedAdapter::Part& part : loaded.parts()) {
      if (part.layer->role() == nn::ParameterRole::Expert)
        throw refusal(config, "it adapts experts, which see only the rows that a router gives them");
      auto& [layer, adapters] = layers[part.layer_name];
      if (layer == nullptr) {
        layer = std::dynamic_pointer_cast<nn::Linear>(nn::find_layer(here, part.layer_name));
        adapters = std::make_shared<RowAdapter>(rows);
      }
      const auto adapter = std::dynamic_pointer_cast<LoraAdapter>(part.adapter);
      if (layer != part.layer) keep_part(*adapter, *layer, *part.layer);
      adapters->add(number, adapter);
    }
  }
  for (auto& [name, layer] : layers) layer.first->set_adapter(layer.second, name);
  return rows;
}

}  // namespace tessera::peft
