#include "tessera/checkpoint/layer_parts.h"

#include <memory>
#include <utility>

namespace tessera::checkpoint {

LayerParts::LayerParts(const torch::nn::Module& model) {
  for (const auto& module : model.modules()) {
    const auto* const layer = dynamic_cast<const nn::Linear*>(module.get());
    if (layer == nullptr) continue;
    forms_[layer->weight.unsafeGetTensorImpl()] = {layer->is_stored_transposed(), 0, layer};
    if (layer->bias.defined()) forms_[layer->bias.unsafeGetTensorImpl()] = {false, 0, layer};
    if (layer->adapter() == nullptr) continue;
    for (const nn::AdapterParameter& parameter : layer->adapter()->adapter_parameters()) {
      forms_[parameter.tensor.unsafeGetTensorImpl()] = {false, parameter.out_dim, layer};
    }
  }
}

std::vector<StoredPart> LayerParts::of(const at::Tensor& parameter, const std::string& stored,
                                       std::vector<std::string> aliases) const {
  const std::vector<int64_t> shape = parameter.sizes().vec();
  const auto found = forms_.find(parameter.unsafeGetTensorImpl());
  const Form form = found == forms_.end() ? Form{} : found->second;
  StoredPart whole = form.is_transposed ? stored_transposed(stored, shape) : stored_as_is(stored, shape);
  whole.aliases = std::move(aliases);
  if (!form.out_dim || form.layer->stored_rows().empty()) return {whole};
  const auto dim = static_cast<size_t>(*form.out_dim);
  const size_t stored_dim = form.is_transposed ? 1 - dim : dim;
  std::vector<StoredPart> parts;
  for (const nn::StoredRows& rows : form.layer->stored_rows()) {
    StoredPart part = whole;
    part.offset[dim] = rows.begin;
    part.box.offset[stored_dim] = rows.stored_begin;
    part.box.size[stored_dim] = rows.size;
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace tessera::checkpoint
