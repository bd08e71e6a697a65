// LoRA adapters on disk, in PEFT's format: adapter_config.json and adapter_model.safetensors.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "tessera/checkpoint/parameter_source.h"
#include "tessera/checkpoint/save_folder.h"
#include "tessera/checkpoint/state_dict_adapter.h"
#include "tessera/io/model_files.h"
#include "tessera/peft/lora.h"

namespace tessera::peft {

// What adapter_config.json says.
struct AdapterConfig {
  LoraOptions options;
  std::string base_model;  // base_model_name_or_path; may be empty
  std::string revision;    // of a base model of the hub; may be empty
  // Whether the base's files hold the adapted weights transposed.
  bool fan_in_fan_out = false;
  std::string source_file;
};

// Between a parameter's name in the model and in the file: "model.layers.0.self_attn.q_proj.lora_A.weight"
// and "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight". The inverse gives nothing for another
// form.
std::string to_peft_name(const std::string& parameter);
std::optional<std::string> from_peft_name(const std::string& stored);

// Reads and validates `folder`/adapter_config.json. Throws Error(Model, "CONFIG") for bad values and
// Error(Model, "UNSUPPORTED") for what would change the numbers: other adapter kinds, DoRA, biases, rank
// patterns and the like.
AdapterConfig read_adapter_config(const std::string& folder);
// `folder`/adapter_model.safetensors. A pickle file alone is refused.
io::ModelFiles open_adapter(const std::string& folder);

// The parameters that belong into an adapter's file, LoRA factors and modules_to_save, under PEFT's names.
// `model` is one after apply_lora(), with global shapes.
checkpoint::StateDictAdapter adapter_table(const torch::nn::Module& model, const LoraTargets& targets);

// The values of those parameters. The files are first held against the table: every tensor of it, and nothing
// more. Throws Error(Model, "ADAPTER") listing at most 20 names; an adapter of which nothing matches is named
// as such.
std::shared_ptr<const checkpoint::ParameterSource> adapter_source(
    const torch::nn::Module& model, const LoraTargets& targets,
    const std::shared_ptr<const io::ModelFiles>& files);

// Single process: apply_lora() with the folder's options, and the values of adapter_source() read into the
// parameters, on `device`. Layers that the options name and the model lacks are an Error(Model, "ADAPTER").
AdapterConfig load_adapter(torch::nn::Module& model, const std::string& folder,
                           const std::vector<std::string>& untouchable = {}, at::Device device = kHost);

// apply_lora() for an adapter that exists: its Config errors come as Error(Model, "ADAPTER") at the file.
LoraTargets apply_adapter(torch::nn::Module& model, const AdapterConfig& config,
                          const std::vector<std::string>& untouchable = {});

// The parameters that belong into an adapter's file: LoRA factors and modules_to_save, by name.
std::vector<std::string> adapter_parameters(const torch::nn::Module& model, const LoraTargets& targets);

// The folder of an adapter: `table` is adapter_table() from before any sharding. `base_model` is what
// base_model_name_or_path shall say.
checkpoint::FolderPlan adapter_folder(checkpoint::StateDictAdapter table, const LoraOptions& options,
                                      const LoraTargets& targets, const std::string& base_model);

}  // namespace tessera::peft
