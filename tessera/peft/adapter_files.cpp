#include "tessera/peft/adapter_files.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/core/torch_dtype.h"
#include "tessera/io/file.h"
#include "tessera/nn/materialize.h"
#include "tessera/nn/read_rows.h"
#include "tessera/peft/targets.h"

namespace tessera::peft {
namespace {

constexpr const char* kPrefix = "base_model.model.";
constexpr const char* kConfigName = "adapter_config.json";
constexpr const char* kWeightsName = "adapter_model.safetensors";
constexpr size_t kMaxListed = 20;

std::string capped_list(const std::vector<std::string>& names) {
  const size_t count = std::min(names.size(), kMaxListed);
  return join({names.begin(), names.begin() + static_cast<ptrdiff_t>(count)}, ", ") +
         (count < names.size() ? ", ..." : "");
}

// Names in the order of `names` that `wanted` also needs, without duplicates.
std::vector<std::string> kinds_in_order(const std::vector<std::string>& names) {
  std::vector<std::string> kinds;
  for (const std::string& name : names) {
    const std::string kind = last_component(name);
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  }
  return kinds;
}

nlohmann::json config_json(const LoraOptions& options, const LoraTargets& targets,
                           const std::string& base_model) {
  nlohmann::json json = {
      {"peft_type", "LORA"},
      {"task_type", "CAUSAL_LM"},
      {"base_model_name_or_path", base_model},
      {"r", options.rank},
      {"lora_alpha", options.alpha},
      {"lora_dropout", options.dropout},
      {"use_rslora", options.use_rslora},
      {"bias", "none"},
      {"fan_in_fan_out", false},
      {"init_lora_weights", true},
      {"inference_mode", true},
      {"use_dora", false},
      {"rank_pattern", nlohmann::json::object()},
      {"alpha_pattern", nlohmann::json::object()},
      {"layers_to_transform", nullptr},
      {"layers_pattern", nullptr},
      {"modules_to_save", nullptr},
      {"auto_mapping", nullptr},
      {"revision", nullptr},
  };
  // PEFT types the key as an integer; most files hold one.
  if (options.alpha == std::floor(options.alpha) && options.alpha < 1e15) {
    json["lora_alpha"] = static_cast<int64_t>(options.alpha);
  }
  if (!options.modules_to_save.empty()) json["modules_to_save"] = options.modules_to_save;
  if (options.all_linear) {
    json["target_modules"] = kinds_in_order(targets.adapted);
  } else if (!options.target_regex.empty()) {
    json["target_modules"] = options.target_regex;
  } else {
    json["target_modules"] = options.target_modules;
  }
  return json;
}

}  // namespace

std::string to_peft_name(const std::string& parameter) { return kPrefix + parameter; }

std::optional<std::string> from_peft_name(const std::string& stored) {
  if (!stored.starts_with(kPrefix)) return std::nullopt;
  return stored.substr(std::string(kPrefix).size());
}

io::ModelFiles open_adapter(const std::string& folder) {
  if (!io::exists(io::join_path(folder, kWeightsName)) &&
      io::exists(io::join_path(folder, "adapter_model.bin"))) {
    throw Error(ErrorKind::Model, "PICKLE", "pickle is not supported")
        .at(io::join_path(folder, "adapter_model.bin"))
        .hint("convert it to safetensors");
  }
  return io::ModelFiles::open(folder, kWeightsName);
}

std::vector<std::string> adapter_parameters(const torch::nn::Module& model, const LoraTargets& targets) {
  std::vector<std::string> names;
  for (const auto& item : model.named_parameters()) {
    const std::string& name = item.key();
    const size_t dot = name.rfind('.');
    const std::string module = dot == std::string::npos ? "" : name.substr(0, dot);
    const bool saved = std::find(targets.saved.begin(), targets.saved.end(), module) != targets.saved.end();
    if (saved || is_lora_parameter(name)) names.push_back(name);
  }
  return names;
}

void check_adapter(const torch::nn::Module& model, const LoraTargets& targets, const io::ModelFiles& files) {
  const auto parameters = model.named_parameters();
  std::set<std::string> known;
  std::vector<std::string> missing, mismatched, unknown;
  for (const std::string& name : adapter_parameters(model, targets)) {
    const std::string stored = to_peft_name(name);
    known.insert(stored);
    const auto found = files.find(stored);
    if (!found) {
      missing.push_back(stored);
    } else if (at::IntArrayRef(found.tensor->shape) != parameters[name].sizes()) {
      mismatched.push_back(stored + " (got " + format_shape(found.tensor->shape) + ", need " +
                           format_shape(parameters[name].sizes().vec()) + ")");
    }
  }
  for (const io::TensorInfo* tensor : files.tensors()) {
    if (known.count(tensor->name) == 0) unknown.push_back(tensor->name);
  }
  std::string problem;
  if (missing.size() == known.size()) {
    problem = "no tensor of the adapter belongs to this model; it holds " +
              (unknown.empty() ? "nothing" : capped_list(unknown));
  } else if (!mismatched.empty()) {
    problem = "tensors of another shape: " + capped_list(mismatched);
  } else if (!missing.empty()) {
    problem = "missing tensors: " + capped_list(missing);
  } else if (!unknown.empty()) {
    problem = "tensors that no target of its configuration has: " + capped_list(unknown);
  }
  if (problem.empty()) return;
  throw Error(ErrorKind::Model, "ADAPTER", problem)
      .at(io::join_path(files.folder(), kWeightsName))
      .hint("rank, targets and base model must be those that the adapter was trained with");
}

LoraTargets apply_adapter(torch::nn::Module& model, const AdapterConfig& config,
                          const std::vector<std::string>& untouchable) {
  try {
    return apply_lora(model, config.options, untouchable);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Config) throw;
    throw Error(ErrorKind::Model, "ADAPTER",
                std::string("the adapter does not fit the model: ") + error.what())
        .at(config.source_file);
  }
}

AdapterConfig load_adapter(torch::nn::Module& model, const std::string& folder,
                           const std::vector<std::string>& untouchable) {
  const AdapterConfig config = read_adapter_config(folder);
  const io::ModelFiles files = open_adapter(folder);
  const LoraTargets targets = apply_adapter(model, config, untouchable);
  check_adapter(model, targets, files);
  auto parameters = model.named_parameters();
  for (const std::string& name : adapter_parameters(model, targets)) {
    at::Tensor& parameter = parameters[name];
    const at::Tensor value = at::empty(parameter.sizes(), at::TensorOptions().dtype(parameter.scalar_type()));
    nn::read_rows(files, to_peft_name(name), 0, value.size(0), value);
    nn::materialize(parameter, value);
  }
  return config;
}

void save_adapter(const std::string& folder, const LoraOptions& options, const LoraTargets& targets,
                  const std::string& base_model,
                  const std::vector<std::pair<std::string, at::Tensor>>& values) {
  std::vector<io::TensorSpec> specs;
  for (const auto& [name, value] : values) {
    TESSERA_ASSERT(value.device().is_cpu(), "adapter tensors are saved from the CPU");
    specs.push_back({to_peft_name(name), to_dtype(value.scalar_type()), value.sizes().vec()});
  }
  io::make_directories(folder);
  io::write_file_atomic(io::join_path(folder, kConfigName),
                        config_json(options, targets, base_model).dump(2) + "\n");
  io::SafetensorsWriter writer(io::join_path(folder, kWeightsName), specs, {{"format", "pt"}});
  for (const auto& [name, value] : values) {
    const at::Tensor dense = value.detach().contiguous();
    writer.write(to_peft_name(name), 0, dense.const_data_ptr(), static_cast<int64_t>(dense.nbytes()));
  }
  writer.commit();
}

}  // namespace tessera::peft
