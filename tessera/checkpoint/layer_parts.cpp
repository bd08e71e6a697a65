#include "tessera/checkpoint/layer_parts.h"

#include <memory>
#include <utility>

#include "tessera/nn/attention_sinks.h"

namespace tessera::checkpoint {

namespace {

// Returns the name without its last `count` components.
std::string without_last(std::string name, int count) {
  for (int i = 0; i < count; ++i) name.resize(name.rfind('.'));
  return name;
}

// Makes the part one of those that lie along the first dim of the tensor `tensor`.
void put_in_stack(StoredPart& part, const nn::StoredStack& stack, const std::string& tensor) {
  part.name = without_last(part.name, stack.names_replaced) + "." + tensor;
  part.aliases.clear();
  part.shape.insert(part.shape.begin(), stack.count);
  part.box.offset.insert(part.box.offset.begin(), stack.index);
  part.box.size.insert(part.box.size.begin(), 1);
}

}  // namespace

LayerParts::LayerParts(const torch::nn::Module& model) {
  for (const auto& module : model.modules()) {
    if (const auto* const sinks = dynamic_cast<const nn::AttentionSinks*>(module.get()))
      forms_[sinks->weight.unsafeGetTensorImpl()].is_bare = true;
    const auto* const layer = dynamic_cast<const nn::Linear*>(module.get());
    if (layer == nullptr) continue;
    const nn::StoredStack stack = layer->stored_stack().value_or(nn::StoredStack{});
    forms_[layer->weight.unsafeGetTensorImpl()] = {layer->is_stored_transposed(), 0, layer, stack.weight};
    if (layer->bias.defined()) forms_[layer->bias.unsafeGetTensorImpl()] = {false, 0, layer, stack.bias};
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
  const std::string name = form.is_bare ? without_last(stored, 1) : stored;
  StoredPart whole = form.is_transposed ? stored_transposed(name, shape) : stored_as_is(name, shape);
  whole.aliases = std::move(aliases);
  std::vector<StoredPart> parts = {whole};
  if (form.out_dim && !form.layer->stored_rows().empty()) {
    const auto dim = static_cast<size_t>(*form.out_dim);
    const size_t stored_dim = form.is_transposed ? 1 - dim : dim;
    parts.clear();
    for (const nn::StoredRows& rows : form.layer->stored_rows()) {
      StoredPart part = whole;
      part.offset[dim] = rows.begin;
      part.box.offset[stored_dim] = rows.stored_begin;
      part.box.size[stored_dim] = rows.size;
      parts.push_back(std::move(part));
    }
  }
  if (form.stack.empty()) return parts;
  for (StoredPart& part : parts) put_in_stack(part, *form.layer->stored_stack(), form.stack);
  return parts;
}

}  // namespace tessera::checkpoint
