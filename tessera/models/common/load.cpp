#include "tessera/models/common/load.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/huge_pages.h"
#include "tessera/core/strings.h"
#include "tessera/nn/materialize.h"
#include "tessera/peft/lora.h"

namespace tessera::models {
namespace {

constexpr size_t kMaxListed = 20;

// Where a parameter's values go in the memory of all.
struct Place {
  at::Tensor parameter;
  std::string name;  // in the files
  at::ScalarType type;
  int64_t offset;

  int64_t bytes() const { return parameter.numel() * static_cast<int64_t>(c10::elementSize(type)); }
  // Leaves the next one aligned to a cache line.
  int64_t end() const {
    constexpr int64_t kLine = 64;
    return offset + (bytes() + kLine - 1) / kLine * kLine;
  }
};

// One kind of mismatch, as "3 missing: a, b, c". Counts against the names that may still be listed.
void append_list(std::vector<std::string>& parts, const std::string& kind,
                 const std::vector<std::string>& names, size_t& budget) {
  if (names.empty()) return;
  const size_t count = std::min(budget, names.size());
  budget -= count;
  std::string text = std::to_string(names.size()) + " " + kind;
  if (count > 0) text += ": " + join({names.begin(), names.begin() + static_cast<ptrdiff_t>(count)}, ", ");
  if (count < names.size()) text += count > 0 ? ", ..." : "";
  parts.push_back(text);
}

}  // namespace

std::string stored_name(const CausalLM& model, const io::ModelFiles& files, const std::string& parameter) {
  if (files.find(parameter)) return parameter;
  for (const TiedParameter& tied : model.tied_parameters()) {
    if (tied.owner == parameter && files.find(tied.alias)) return tied.alias;
  }
  return parameter;
}

void check_tensors(const CausalLM& model, const io::ModelFiles& files) {
  std::vector<std::string> missing, unknown, wrong_shape, wrong_type;
  std::set<std::string> known;
  for (const auto& item : model.named_parameters()) {
    if (peft::is_lora_parameter(item.key())) continue;
    const std::string name = stored_name(model, files, item.key());
    known.insert(name);
    const auto found = files.find(name);
    if (!found) {
      missing.push_back(name);
    } else if (at::IntArrayRef(found.tensor->shape) != item.value().sizes()) {
      wrong_shape.push_back(name + " (got " + format_shape(found.tensor->shape) + ", need " +
                            format_shape(item.value().sizes().vec()) + ")");
    } else if (!nn::is_weight_dtype(found.tensor->dtype)) {
      wrong_type.push_back(name + " (" + std::string(dtype_name(found.tensor->dtype)) + ")");
    }
  }
  for (const TiedParameter& tied : model.tied_parameters()) known.insert(tied.alias);
  for (const io::TensorInfo* tensor : files.tensors()) {
    if (known.count(tensor->name) == 0 && !model.ignores_tensor(tensor->name))
      unknown.push_back(tensor->name);
  }

  std::vector<std::string> parts;
  size_t budget = kMaxListed;
  append_list(parts, "missing", missing, budget);
  append_list(parts, "of another shape", wrong_shape, budget);
  append_list(parts, "of a type other than F64, F32, F16, BF16", wrong_type, budget);
  append_list(parts, "that the model does not have", unknown, budget);
  if (parts.empty()) return;
  throw Error(ErrorKind::Model, "TENSORS",
              "the tensors do not fit the model of config.json: " + join(parts, "; "))
      .at(files.folder())
      .hint("config.json and the weights must come from one model");
}

void load_weights(CausalLM& model, const io::ModelFiles& files, bool keeps_bf16) {
  check_tensors(model, files);
  const at::ScalarType hidden_type = model.hidden_type();
  std::vector<Place> places;
  int64_t bytes = 0;
  bool is_narrower = false;
  for (const auto& item : model.named_parameters()) {
    if (peft::is_lora_parameter(item.key())) continue;
    Place place{item.value(), stored_name(model, files, item.key()), item.value().scalar_type(), bytes};
    const bool is_bf16 = files.require(place.name).tensor->dtype == DType::BF16;
    if (keeps_bf16 && is_bf16 && place.type == at::kFloat && place.parameter.dim() == 2) {
      place.type = at::kBFloat16;
      is_narrower = true;
    }
    bytes = place.end();
    places.push_back(std::move(place));
  }
  // One piece for all: only that is large enough for large pages throughout.
  const at::Tensor all = at::empty({bytes}, at::TensorOptions().dtype(at::kByte));
  advise_huge_pages(all.mutable_data_ptr(), bytes);
  for (Place& place : places) {
    const at::Tensor value =
        all.narrow(0, place.offset, place.bytes()).view(place.type).view(place.parameter.sizes());
    read_rows(files, place.name, 0, value.dim() == 0 ? 1 : value.size(0), value);
    nn::materialize(place.parameter, value);
    if (is_narrower) place.parameter.set_requires_grad(false);
  }
  if (is_narrower) model.set_hidden_type(hidden_type);
}

}  // namespace tessera::models
