#include "tessera/peft/carried_parameters.h"

#include <algorithm>
#include <memory>

#include "tessera/checkpoint/tied_weights.h"
#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/io/file.h"

namespace tessera::peft {

Error adapter_error(const io::ModelFiles& files, const std::string& tensor, const std::string& what) {
  Error error(ErrorKind::Model, "ADAPTER", what);
  error.in(io::join_path(files.folder(), "adapter_model.safetensors") + ": tensor '" + tensor + "'");
  return error;
}

namespace {

constexpr const char* kPrefix = "base_model.model.";
// Modules of adapters whose weight files hold under the module's name.
constexpr const char* kVectors[] = {".lora_magnitude_vector", ".ia3_l", ".vera_lambda_b", ".vera_lambda_d"};
constexpr char kNorms[] = ".ln_tuning_layers";

void check_shape(const io::ModelFiles& files, const io::TensorInfo& tensor, const at::Tensor& parameter) {
  const std::vector<int64_t> need = parameter.sizes().vec();
  if (tensor.shape == need) return;
  throw adapter_error(files, tensor.name, "the adapter contains a weight of another shape than the model's")
      .got(format_shape(tensor.shape))
      .need(format_shape(need))
      .hint(
          "its vocabulary was resized for training; resize the base model's embeddings in the same way, or "
          "merge the adapter with the tool that trained it");
}

// Returns the other names of a parameter that the model ties.
std::vector<std::string> tied_names(const std::string& parameter, const TiedModules& tied) {
  std::vector<std::string> names;
  for (const auto& [alias, owner] : tied) {
    if (parameter == owner + ".weight") names.push_back(alias + ".weight");
  }
  return names;
}

// Two names of one weight must say the same: which one PEFT would take depends on their order.
void check_equal(const io::ModelFiles& files, const std::string& a, const std::string& b) {
  const std::shared_ptr<const io::ModelFiles> borrowed(std::shared_ptr<void>(), &files);
  if (checkpoint::equal_values(*checkpoint::stored_tensors(borrowed), a, b)) return;
  throw adapter_error(files, a, "the adapter contains different values for two weights that the model ties")
      .got("another '" + b + "'")
      .hint("set tie_word_embeddings to false in the base model's config.json");
}

}  // namespace

std::string to_peft_name(const std::string& parameter) {
  if (parameter.ends_with(".prompt_adapter.weight")) return "prompt_embeddings";
  std::string name = kPrefix + parameter;
  for (const char* ending : {"A_start.weight", "B_start.weight"}) {
    if (name.ends_with(std::string(".lora_") + ending)) name.erase(name.size() - 13, 6);
  }
  for (const std::string vector : kVectors) {
    if (name.ends_with(vector + ".weight")) name.resize(name.size() - 7);
  }
  return name;
}

std::string to_peft_norm_name(const std::string& parameter) {
  std::string name = to_peft_name(parameter);
  return name.insert(name.rfind('.'), kNorms);
}

std::optional<std::string> from_peft_name(const std::string& stored) {
  if (!stored.starts_with(kPrefix)) return std::nullopt;
  std::string name = stored.substr(std::string(kPrefix).size());
  for (const char* vector : kVectors) {
    if (name.ends_with(vector)) return name + ".weight";
  }
  if (const size_t norm = name.rfind(kNorms); norm != std::string::npos) name.erase(norm, sizeof(kNorms) - 1);
  return name;
}

std::vector<std::string> sharing_modules(const TiedModules& tied) {
  std::vector<std::string> modules;
  for (const auto& [alias, owner] : tied) modules.insert(modules.end(), {alias, owner});
  return modules;
}

std::vector<CarriedParameter> read_carried(const torch::nn::Module& model, const LoraTargets& targets,
                                           const io::ModelFiles& files, const TiedModules& tied) {
  std::vector<CarriedParameter> carried;
  for (const auto& item : model.named_parameters()) {
    const std::string module = item.key().substr(0, item.key().rfind('.'));
    if (is_lora_parameter(item.key()) || std::ranges::count(targets.saved, module) > 0) continue;
    CarriedParameter found{item.key(), tied_names(item.key(), tied)};
    std::string first;  // the first of its names that the files hold
    std::vector<std::string> names = found.aliases;
    names.insert(names.begin(), found.name);
    for (const std::string& name : names) {
      const auto place = files.find(to_peft_name(name));
      if (!place) continue;
      check_shape(files, *place.tensor, item.value());
      if (!first.empty()) check_equal(files, first, place.tensor->name);
      if (first.empty()) first = place.tensor->name;
    }
    if (!first.empty()) carried.push_back(std::move(found));
  }
  return carried;
}

void carry_token_tables(const torch::nn::Module& model, const std::vector<std::string>& tables,
                        const TiedModules& tied, LoraTargets& targets) {
  for (const auto& item : model.named_parameters()) {
    const std::string module = item.key().substr(0, item.key().rfind('.'));
    if (std::ranges::count(tables, item.key()) == 0 || std::ranges::count(targets.saved, module) > 0)
      continue;
    targets.carried.push_back({item.key(), tied_names(item.key(), tied)});
  }
}

std::optional<int64_t> carried_vocabulary(const io::ModelFiles& files, bool is_tied) {
  const std::shared_ptr<const io::ModelFiles> borrowed(std::shared_ptr<void>(), &files);
  const auto tensors = checkpoint::stored_tensors(borrowed);
  const io::TensorSpec* embedding = tensors->find(checkpoint::find_embedding(*tensors));
  if (embedding == nullptr || embedding->shape.size() != 2) return std::nullopt;
  const int64_t rows = embedding->shape[0];
  const io::TensorSpec* head = nullptr;
  for (const io::TensorSpec& tensor : tensors->tensors()) {
    if (tensor.name.ends_with(".lm_head.weight")) head = &tensor;
  }
  if (head == nullptr && is_tied) return rows;
  if (head != nullptr && !head->shape.empty() && head->shape[0] == rows) return rows;
  throw adapter_error(files, head != nullptr ? head->name : embedding->name,
                      "the adapter's embedding and output head have different vocabularies")
      .got(head != nullptr ? format_shape(head->shape) : "no output head")
      .need(std::to_string(rows) + " rows, as in '" + embedding->name + "'");
}

const CarriedParameter* find_carried(const LoraTargets& targets, const std::string& parameter) {
  const auto found = std::ranges::find(targets.carried, parameter, &CarriedParameter::name);
  return found == targets.carried.end() ? nullptr : &*found;
}

}  // namespace tessera::peft
