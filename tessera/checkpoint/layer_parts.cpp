#include "tessera/checkpoint/layer_parts.h"

#include <memory>
#include <utility>

#include "tessera/nn/bare_values.h"
#include "tessera/nn/head_norm.h"
#include "tessera/nn/short_convolution.h"
#include "tessera/nn/xielu.h"

namespace tessera::checkpoint {

namespace {

// Returns the name without its last `count` components.
std::string without_last(std::string name, int count) {
  for (int i = 0; i < count; ++i) name.resize(name.rfind('.'));
  return name;
}

// Makes the part one of the tensor of the layer that its rows are stored in: of `names`, as many layers as
// share the rows evenly. The part lies in one of them.
void put_apart(StoredPart& part, const std::vector<std::string>& names) {
  const size_t dim = part.is_transposed ? 1 : 0;
  const int64_t rows = part.shape[dim] / static_cast<int64_t>(names.size());
  const int64_t index = part.box.offset[dim] / rows;
  const std::string end = part.name.substr(part.name.rfind('.'));
  part.name = without_last(part.name, 2) + "." + names[static_cast<size_t>(index)] + end;
  part.shape[dim] = rows;
  part.box.offset[dim] -= index * rows;
}

// Returns one stored tensor for each head of a weight, [heads * head_dim]: "norm.weight" is in
// "norm.<list>.0.weight", and so on.
std::vector<StoredPart> parts_of_heads(const std::string& name, const std::string& list, int64_t size,
                                       int64_t head_dim) {
  const std::string layer = without_last(name, 1) + "." + list + ".", end = name.substr(name.rfind('.'));
  std::vector<StoredPart> parts;
  for (int64_t begin = 0; begin < size; begin += head_dim) {
    parts.push_back(stored_as_is(layer + std::to_string(begin / head_dim) + end, {head_dim}));
    parts.back().offset = {begin};
  }
  return parts;
}

}  // namespace

void put_in_stack(StoredPart& part, int64_t index, int64_t count, const std::string& tensor) {
  part.name = tensor;
  part.aliases.clear();
  part.shape.insert(part.shape.begin(), count);
  part.box.offset.insert(part.box.offset.begin(), index);
  part.box.size.insert(part.box.size.begin(), 1);
}

LayerParts::LayerParts(const torch::nn::Module& model) {
  for (const auto& module : model.modules()) {
    if (const auto* const values = dynamic_cast<const nn::BareValues*>(module.get()))
      forms_[values->weight.unsafeGetTensorImpl()].is_bare = true;
    if (const auto* const taps = dynamic_cast<const nn::ShortConvolution*>(module.get())) {
      for (const at::Tensor& parameter : taps->parameters(/*recurse=*/false))
        forms_[parameter.unsafeGetTensorImpl()] = {false, 0, &taps->stored_rows()};
    }
    if (const auto* const xielu = dynamic_cast<const nn::XIELU*>(module.get())) {
      for (const at::Tensor& constant : {xielu->beta, xielu->eps})
        forms_[constant.unsafeGetTensorImpl()].is_number = true;
    }
    if (const auto* const norm = dynamic_cast<const nn::HeadNorm*>(module.get())) {
      Form& form = forms_[norm->weight.unsafeGetTensorImpl()];
      form.list = norm->stored_list();
      form.head_dim = norm->head_dim();
    }
    const auto* const layer = dynamic_cast<const nn::Linear*>(module.get());
    if (layer == nullptr) continue;
    const auto* const rows = &layer->stored_rows();
    const nn::StoredStack stack = layer->stored_stack().value_or(nn::StoredStack{});
    forms_[layer->weight.unsafeGetTensorImpl()] = {layer->is_stored_transposed(), 0, rows, layer,
                                                   stack.weight};
    if (layer->bias.defined())
      forms_[layer->bias.unsafeGetTensorImpl()] = {false, 0, rows, layer, stack.bias};
    if (layer->adapter() == nullptr) continue;
    for (const nn::AdapterParameter& parameter : layer->adapter()->adapter_parameters()) {
      forms_[parameter.tensor.unsafeGetTensorImpl()] = {false, parameter.out_dim, rows};
    }
  }
}

std::vector<StoredPart> LayerParts::of(const at::Tensor& parameter, const std::string& stored,
                                       std::vector<std::string> aliases) const {
  const std::vector<int64_t> shape = parameter.sizes().vec();
  const auto found = forms_.find(parameter.unsafeGetTensorImpl());
  const Form form = found == forms_.end() ? Form{} : found->second;
  const std::string name = form.is_bare ? without_last(stored, 1) : stored;
  if (form.is_number) return {stored_number(name)};
  if (!form.list.empty()) return parts_of_heads(name, form.list, shape.front(), form.head_dim);
  StoredPart whole = form.is_transposed ? stored_transposed(name, shape) : stored_as_is(name, shape);
  whole.aliases = std::move(aliases);
  std::vector<StoredPart> parts = {whole};
  if (form.out_dim && !form.rows->empty()) {
    const auto dim = static_cast<size_t>(*form.out_dim);
    const size_t stored_dim = form.is_transposed ? 1 - dim : dim;
    parts.clear();
    for (const nn::StoredRows& rows : *form.rows) {
      StoredPart part = whole;
      part.offset[dim] = rows.begin;
      part.box.offset[stored_dim] = rows.stored_begin;
      part.box.size[stored_dim] = rows.size;
      parts.push_back(std::move(part));
    }
  }
  if (form.layer != nullptr && !form.layer->stored_apart().empty()) {
    for (StoredPart& part : parts) put_apart(part, form.layer->stored_apart());
  }
  if (form.stack.empty()) return parts;
  const nn::StoredStack& stack = *form.layer->stored_stack();
  const std::string tensor = without_last(stored, stack.names_replaced) + "." + form.stack;
  for (StoredPart& part : parts) put_in_stack(part, stack.index, stack.count, tensor);
  return parts;
}

}  // namespace tessera::checkpoint
