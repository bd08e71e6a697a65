#include "tessera/peft/adapter_files.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/checkpoint/layer_parts.h"
#include "tessera/checkpoint/whole_model.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/io/file.h"
#include "tessera/peft/adapter_config_text.h"
#include "tessera/peft/carried_parameters.h"
#include "tessera/peft/targets.h"
#include "tessera/peft/vera_files.h"

namespace tessera::peft {
namespace {

constexpr const char* kConfigName = "adapter_config.json";
constexpr const char* kWeightsStem = "adapter_model";
constexpr const char* kWeightsName = "adapter_model.safetensors";
constexpr size_t kMaxListed = 20;

std::string capped_list(const std::vector<std::string>& names) {
  const size_t count = std::min(names.size(), kMaxListed);
  return join({names.begin(), names.begin() + static_cast<ptrdiff_t>(count)}, ", ") +
         (count < names.size() ? ", ..." : "");
}

// Describes what is wrong with the tensors of an adapter's file; empty where all is right.
std::string describe(const checkpoint::TensorMismatches& mismatches, size_t num_wanted) {
  if (mismatches.missing.size() == num_wanted) {
    return "no tensor of the adapter belongs to this model; the adapter has " +
           (mismatches.unknown.empty() ? "nothing" : capped_list(mismatches.unknown));
  }
  if (!mismatches.wrong_shape.empty()) {
    return "tensors of another shape: " + capped_list(mismatches.wrong_shape);
  }
  if (!mismatches.missing.empty()) return "missing tensors: " + capped_list(mismatches.missing);
  if (!mismatches.unknown.empty()) {
    return "tensors that belong to no target in its configuration: " + capped_list(mismatches.unknown);
  }
  if (!mismatches.wrong_type.empty()) {
    return "tensors of a type other than F64, F32, F16, BF16: " + capped_list(mismatches.wrong_type);
  }
  return "";
}

}  // namespace

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
    if (saved || is_lora_parameter(name) || find_carried(targets, name) != nullptr) names.push_back(name);
  }
  return names;
}

namespace {

// Makes the parts of a factor, and of the one that it starts with, halves of one stored tensor: the change of
// the weight, B A - B0 A0, is the product of [B, -B0] and [A; A0].
void put_in_half(std::vector<checkpoint::StoredPart>& parts, size_t rank_dim, bool is_second) {
  for (checkpoint::StoredPart& part : parts) {
    const int64_t rank = part.shape[rank_dim];
    part.shape[rank_dim] = 2 * rank;
    if (is_second) part.box.offset[rank_dim] += rank;
  }
}

}  // namespace

checkpoint::StateDictAdapter adapter_table(const torch::nn::Module& model, const LoraTargets& targets) {
  const auto parameters = model.named_parameters();
  const checkpoint::LayerParts parts(model);
  std::vector<checkpoint::StoredParameter> table;
  for (const std::string& name : adapter_parameters(model, targets)) {
    const at::Tensor& parameter = parameters[name];
    const CarriedParameter* carried = find_carried(targets, name);
    std::vector<std::string> aliases;
    if (carried != nullptr) {
      for (const std::string& alias : carried->aliases) aliases.push_back(to_peft_name(alias));
    }
    if (checkpoint::is_in_text_body(name)) aliases.push_back(to_peft_name(checkpoint::older_text_name(name)));
    const bool is_norm = targets.are_norms && carried == nullptr;
    const std::string stored = is_norm ? to_peft_norm_name(name) : to_peft_name(name);
    table.push_back({name, parameter.sizes().vec(), parts.of(parameter, stored, aliases)});
    for (const auto& [end, is_b] : {std::pair(kFactorA, false), std::pair(kFactorB, true)}) {
      if (!name.ends_with(end)) continue;
      const auto expert = targets.experts.find(name.substr(0, name.size() - std::string(end).size()));
      if (expert != targets.experts.end())
        put_in_experts(table.back().parts, expert->second, is_b, targets.experts);
    }
    using Factor = std::pair<std::string, size_t>;
    for (const auto& [factor, rank_dim] : {Factor(".lora_A", 0), Factor(".lora_B", 1)}) {
      const std::string own = factor + ".weight", start = factor + "_start.weight";
      const bool is_start = name.ends_with(start);
      if (!is_start && !name.ends_with(own)) continue;
      const std::string layer = name.substr(0, name.size() - (is_start ? start : own).size());
      if (parameters.contains(layer + start)) put_in_half(table.back().parts, rank_dim, is_start);
    }
  }
  return checkpoint::StateDictAdapter(std::move(table));
}

std::shared_ptr<const checkpoint::ParameterSource> adapter_source(
    const torch::nn::Module& model, const LoraTargets& targets,
    const std::shared_ptr<const io::ModelFiles>& files) {
  checkpoint::StateDictAdapter table = adapter_table(model, targets);
  auto stored = with_expert_factors(checkpoint::stored_tensors(files), table);
  const bool is_text_part = std::ranges::any_of(
      table.parameters(), [](const auto& parameter) { return checkpoint::is_in_text_body(parameter.name); });
  int64_t num_others = 0;
  const auto mismatches = checkpoint::compare_tensors(table, *stored, [&](const std::string& name) {
    const std::optional<std::string> known = from_peft_name(name);
    const bool is_other = is_text_part && known && !checkpoint::is_of_text_part(*known);
    if (is_other) ++num_others;
    return is_other || (targets.projections != nullptr && is_projection(name));
  });
  if (num_others > 0) {
    log::warn(files->folder() + ": " + std::to_string(num_others) +
              " tensors adapt other parts of the multimodal model than its text; they are not read here");
  }
  const std::string problem = describe(mismatches, table.stored_tensors().size());
  if (problem.empty()) return checkpoint::stored_source(std::move(stored), std::move(table));
  throw Error(ErrorKind::Model, "ADAPTER", problem)
      .at(io::join_path(files->folder(), kWeightsName))
      .hint("rank, targets and base model must be those that the adapter was trained with");
}

LoraTargets apply_adapter(torch::nn::Module& model, const AdapterConfig& config, const io::ModelFiles& files,
                          const TiedModules& tied) {
  try {
    LoraTargets targets = apply_lora(model, config.options, sharing_modules(tied));
    targets.carried = read_carried(model, targets, files, tied);
    if (targets.projections != nullptr && config.options.vera.save_projection)
      read_projections(*targets.projections, files);
    return targets;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Config) throw;
    throw Error(ErrorKind::Model, "ADAPTER",
                std::string("the adapter does not fit the model: ") + error.what())
        .at(config.source_file);
  }
}

AdapterConfig load_adapter(torch::nn::Module& model, const std::string& folder, const TiedModules& tied,
                           at::Device device) {
  const AdapterConfig config = read_adapter_config(folder);
  const auto files = std::make_shared<const io::ModelFiles>(open_adapter(folder));
  const auto source = adapter_source(model, apply_adapter(model, config, *files, tied), files);
  checkpoint::materialize(model, *source, device);
  return config;
}

io::ShardedSafetensorsWriter::Options adapter_weights() {
  io::ShardedSafetensorsWriter::Options weights;
  weights.name = kWeightsStem;
  weights.max_shard_bytes = std::numeric_limits<int64_t>::max();
  return weights;
}

checkpoint::FolderPlan adapter_folder(checkpoint::StateDictAdapter table, const LoraOptions& options,
                                      const LoraTargets& targets, const std::string& base_model) {
  checkpoint::FolderPlan plan;
  for (const auto& tensor : table.stored_tensors()) {
    if (is_expert_factor(tensor)) plan.innermost_first.insert(tensor.name);
  }
  plan.table = std::move(table);
  plan.weights = adapter_weights();
  if (targets.projections != nullptr && options.vera.save_projection) {
    plan.constants = {{kProjectionA, targets.projections->a()}, {kProjectionB, targets.projections->b()}};
  }
  plan.files.emplace_back(kConfigName, adapter_config_text(options, targets, base_model));
  return plan;
}

}  // namespace tessera::peft
