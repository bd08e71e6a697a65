#include "tessera/models/common/load.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/huge_pages.h"
#include "tessera/core/mismatch_list.h"
#include "tessera/core/strings.h"
#include "tessera/nn/materialize.h"
#include "tessera/peft/lora.h"

namespace tessera::models {
namespace {

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

}  // namespace

std::string stored_name(const CausalLM& model, const io::ModelFiles& files, const std::string& parameter) {
  if (files.find(parameter)) return parameter;
  for (const TiedParameter& tied : model.tied_parameters()) {
    if (tied.owner == parameter && files.find(tied.alias)) return tied.alias;
  }
  return parameter;
}

void check_tensors(const CausalLM& model, const io::ModelFiles& files) {
  const std::string missing = "missing", wrong_shape = "of another shape",
                    wrong_type = "of a type other than F64, F32, F16, BF16",
                    unknown = "that the model does not have";
  MismatchList mismatches({missing, wrong_shape, wrong_type, unknown});
  std::set<std::string> known;
  for (const auto& item : model.named_parameters()) {
    if (peft::is_lora_parameter(item.key())) continue;
    const std::string name = stored_name(model, files, item.key());
    known.insert(name);
    const auto found = files.find(name);
    if (!found) {
      mismatches.add(missing, name);
    } else if (at::IntArrayRef(found.tensor->shape) != item.value().sizes()) {
      mismatches.add(wrong_shape, name + " (got " + format_shape(found.tensor->shape) + ", need " +
                                      format_shape(item.value().sizes().vec()) + ")");
    } else if (!nn::is_weight_dtype(found.tensor->dtype)) {
      mismatches.add(wrong_type, name + " (" + std::string(dtype_name(found.tensor->dtype)) + ")");
    }
  }
  for (const TiedParameter& tied : model.tied_parameters()) known.insert(tied.alias);
  for (const io::TensorInfo* tensor : files.tensors()) {
    if (known.count(tensor->name) == 0 && !model.ignores_tensor(tensor->name))
      mismatches.add(unknown, tensor->name);
  }

  if (mismatches.empty()) return;
  throw Error(ErrorKind::Model, "TENSORS",
              "the tensors do not fit the model of config.json: " + mismatches.text())
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
