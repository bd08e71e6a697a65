#include "tessera/models/common/load.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/checkpoint/random_source.h"
#include "tessera/checkpoint/tied_weights.h"
#include "tessera/core/error.h"
#include "tessera/core/huge_pages.h"
#include "tessera/device/host_memory.h"
#include "tessera/nn/materialize.h"
#include "tessera/peft/lora.h"

namespace tessera::models {
namespace {

// The place of a parameter's values in the one allocation that holds all of them.
struct Place {
  std::string name;
  at::Tensor parameter;
  at::ScalarType type;  // of the values, which may be narrower than the parameter's
  int64_t offset;       // in bytes

  int64_t bytes() const { return parameter.numel() * static_cast<int64_t>(c10::elementSize(type)); }
  // Returns the offset of the next place, aligned to a cache line.
  int64_t end() const {
    constexpr int64_t kLine = 64;
    return offset + (bytes() + kLine - 1) / kLine * kLine;
  }
};

}  // namespace

checkpoint::StateDictAdapter state_dict_adapter(const CausalLM& model) {
  const checkpoint::LayerParts layers(model);
  std::vector<checkpoint::StoredParameter> parameters;
  for (const auto& item : model.named_parameters()) {
    if (peft::is_lora_parameter(item.key())) continue;
    parameters.push_back(
        {item.key(), item.value().sizes().vec(), model.stored_parts(item.key(), item.value(), layers)});
  }
  return checkpoint::StateDictAdapter(std::move(parameters));
}

std::vector<std::string> token_tables(const CausalLM& model) {
  std::vector<std::string> names;
  for (const auto& [name, role] : model.parameter_roles()) {
    if (role == nn::ParameterRole::Embedding || role == nn::ParameterRole::OutputHead) names.push_back(name);
  }
  return names;
}

namespace {

// Lists the parameters of the head of a task, without those of the body's final norm and embedding.
std::vector<std::string> head_parameters(const CausalLM& model) {
  std::vector<std::string> names;
  const auto head = model.head().used_parameters();
  const nn::ParameterRoles roles = model.parameter_roles();
  for (const auto& item : model.named_parameters()) {
    const nn::ParameterRole role = roles.at(item.key());
    const bool is_of_body = role == nn::ParameterRole::Norm || role == nn::ParameterRole::Embedding;
    const bool is_of_head =
        std::ranges::any_of(head, [&](const at::Tensor& p) { return p.is_same(item.value()); });
    if (is_of_head && !is_of_body) names.push_back(item.key());
  }
  return names;
}

}  // namespace

std::vector<std::string> head_modules(const CausalLM& model, const checkpoint::StoredTensors* files) {
  const std::string body = model.body_name() + ".";
  std::vector<std::string> modules;
  for (const std::string& name : head_parameters(model)) {
    const bool is_in_body = name.starts_with(body);
    if (is_in_body && files != nullptr &&
        (files->find(name) != nullptr || files->find(name.substr(body.size())) != nullptr))
      continue;
    const std::string module = name.substr(0, is_in_body ? name.rfind('.') : name.find('.'));
    if (std::ranges::count(modules, module) == 0) modules.push_back(module);
  }
  return modules;
}

std::vector<std::string> check_tensors(const CausalLM& model, const checkpoint::StoredTensors& files,
                                       bool takes_new_head) {
  std::vector<std::string> added;
  auto mismatches = checkpoint::compare_tensors(
      state_dict_adapter(model), files, [&](const std::string& name) { return model.ignores_tensor(name); });
  if (takes_new_head && (model.config().classification || model.config().is_masked_lm)) {
    for (const std::string& name : head_parameters(model)) {
      if (std::erase(mismatches.missing, name) > 0) added.push_back(name);
    }
  }
  if (mismatches.empty()) return added;
  const bool lacks_head = mismatches.missing == std::vector<std::string>{"lm_head.weight"};
  throw Error(ErrorKind::Model, "TENSORS",
              "the tensors do not fit the model of config.json: " + mismatches.text())
      .at(files.place())
      .hint(lacks_head ? "the model was saved without its output head: save it with the head, or set "
                         "tie_word_embeddings in config.json if the embedding is also the head"
                       : "config.json and the weights must come from one model");
}

std::optional<DifferentTie> find_different_tie(const CausalLM& model,
                                               const checkpoint::StoredTensors& files) {
  const checkpoint::StateDictAdapter table = state_dict_adapter(model);
  for (const TiedParameter& tied : model.tied_parameters()) {
    const checkpoint::StoredPart& part = table.find(tied.owner)->parts.front();
    std::vector<std::string> names = part.aliases;
    names.insert(names.begin(), part.name);
    std::erase(names, tied.alias);
    const auto own =
        std::ranges::find_if(names, [&](const std::string& name) { return files.find(name) != nullptr; });
    if (own == names.end() || files.find(tied.alias) == nullptr) continue;
    if (!checkpoint::equal_values(files, *own, tied.alias)) return DifferentTie{*own, tied.alias};
  }
  return std::nullopt;
}

void load_weights(CausalLM& model, const checkpoint::ParameterSource& source, bool keeps_bf16,
                  at::Device device, const BoxOf& box_of) {
  const at::ScalarType hidden_type = model.hidden_type();
  std::vector<Place> places;
  int64_t bytes = 0;
  bool is_narrower = false;
  for (const auto& item : model.named_parameters()) {
    if (!source.holds(item.key())) continue;
    Place place{item.key(), item.value(), item.value().scalar_type(), bytes};
    const bool is_bf16 = source.stored_dtype(item.key()) == DType::BF16;
    if (keeps_bf16 && is_bf16 && place.type == at::kFloat && place.parameter.dim() == 2) {
      place.type = at::kBFloat16;
      is_narrower = true;
    }
    bytes = place.end();
    places.push_back(std::move(place));
  }
  // All parameters lie in one allocation: only this is large enough to consist of huge pages throughout.
  const at::Tensor all = at::empty({bytes}, at::TensorOptions(device).dtype(at::kByte));
  if (is_on_host(all)) advise_huge_pages(host_span<char>(all).data(), bytes);
  for (Place& place : places) {
    const at::Tensor value =
        all.narrow(0, place.offset, place.bytes()).view(place.type).view(place.parameter.sizes());
    const parallel::Box box = box_of ? box_of(place.parameter) : checkpoint::whole_box(value.sizes().vec());
    source.read(place.name, box, value);
    nn::materialize(place.parameter, value);
    if (is_narrower) place.parameter.set_requires_grad(false);
  }
  if (is_narrower) model.set_hidden_type(hidden_type);
}

void load_weights(CausalLM& model, const std::shared_ptr<const checkpoint::StoredTensors>& files,
                  bool keeps_bf16, at::Device device) {
  check_tensors(model, *files);
  if (const auto tie = find_different_tie(model, *files)) {
    throw Error(ErrorKind::Model, "TIE",
                "'" + tie->alias + "' differs from '" + tie->own + "', although config.json ties them")
        .at(files->place())
        .hint("set tie_word_embeddings to false in config.json");
  }
  load_weights(model, *checkpoint::stored_source(files, state_dict_adapter(model)), keeps_bf16, device);
}

void load_weights(CausalLM& model, const io::ModelFiles& files, bool keeps_bf16) {
  // A shared pointer that owns nothing: it lives no longer than this call, which `files` outlives.
  const std::shared_ptr<const io::ModelFiles> borrowed(std::shared_ptr<void>(), &files);
  load_weights(model, checkpoint::stored_tensors(borrowed), keeps_bf16);
}

std::shared_ptr<const checkpoint::ParameterSource> random_source(const CausalLM& model, uint64_t seed) {
  return std::make_shared<checkpoint::RandomSource>(model, model.config().initializer_range, seed);
}

}  // namespace tessera::models
