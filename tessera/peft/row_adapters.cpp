#include "tessera/peft/row_adapters.h"

#include <map>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/nn/linear.h"
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
    TESSERA_ASSERT(false, "adapters of rows are for whole layers");
  }

 private:
  const std::shared_ptr<const nn::AdapterRows> rows_;
  std::map<int64_t, std::shared_ptr<LoraAdapter>> adapters_;
};

}  // namespace

std::shared_ptr<nn::AdapterRows> apply_row_adapters(torch::nn::Module& model,
                                                    const std::vector<std::string>& folders,
                                                    const TiedModules& tied, at::Device device) {
  auto rows = std::make_shared<nn::AdapterRows>();
  std::map<std::string, std::pair<std::shared_ptr<nn::Linear>, std::shared_ptr<RowAdapter>>> layers;
  int64_t number = nn::AdapterRows::kNoAdapter;
  for (const std::string& folder : folders) {
    ++number;
    const AdapterConfig config = read_adapter_config(folder);
    if (const std::string why = why_no_sum(config.options); !why.empty()) throw refusal(config, why);
    const LoadedAdapter loaded(model, folder, tied, device);
    for (const LoadedAdapter::Part& part : loaded.parts()) {
      if (part.layer->role() == nn::ParameterRole::Expert)
        throw refusal(config, "it adapts experts, which see only the rows that a router gives them");
      auto& [layer, adapters] = layers[part.layer_name];
      if (layer == nullptr) {
        layer = part.layer;
        adapters = std::make_shared<RowAdapter>(rows);
      }
      adapters->add(number, std::dynamic_pointer_cast<LoraAdapter>(part.adapter));
    }
  }
  for (auto& [name, layer] : layers) layer.first->set_adapter(layer.second, name);
  return rows;
}

}  // namespace tessera::peft
