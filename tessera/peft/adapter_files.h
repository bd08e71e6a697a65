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
#include "tessera/peft/carried_parameters.h"
#include "tessera/peft/lora.h"

namespace tessera::peft {

// Contents of adapter_config.json.
struct AdapterConfig {
  LoraOptions options;
  std::string base_model;  // base_model_name_or_path; may be empty
  std::string revision;    // of a base model of the hub; may be empty
  // The base's files hold the adapted weights transposed.
  bool fan_in_fan_out = false;
  std::string source_file;
};

// Reads and validates `folder`/adapter_config.json. Throws Error(Model, "CONFIG") for bad values and
// Error(Model, "UNSUPPORTED") for what would change the numbers: other adapter kinds, biases and the like.
AdapterConfig read_adapter_config(const std::string& folder);
// Opens `folder`/adapter_model.safetensors. Throws Error(Model, "PICKLE") where there is only a pickle file.
io::ModelFiles open_adapter(const std::string& folder);

// Returns the table of the adapter_parameters(), under PEFT's names. `model` has been through apply_lora()
// and has its global shapes.
checkpoint::StateDictAdapter adapter_table(const torch::nn::Module& model, const LoraTargets& targets);

// Returns the source of the values of those parameters. First compares the files with the table: they must
// hold every tensor of it, and nothing more. Throws Error(Model, "ADAPTER") that lists at most 20 names; its
// text says so where no tensor of the adapter matches.
std::shared_ptr<const checkpoint::ParameterSource> adapter_source(
    const torch::nn::Module& model, const LoraTargets& targets,
    const std::shared_ptr<const io::ModelFiles>& files);

// For a single process: calls apply_adapter() with the folder's options and reads the values of
// adapter_source() into the parameters, on `device`. Throws Error(Model, "ADAPTER") where the options name
// layers that the model lacks.
AdapterConfig load_adapter(torch::nn::Module& model, const std::string& folder, const TiedModules& tied = {},
                           at::Device device = kHost);

// Calls apply_lora() for an adapter that exists, and finds the parameters that its files carry. Errors of
// kind Config become Error(Model, "ADAPTER") at the adapter's adapter_config.json.
LoraTargets apply_adapter(torch::nn::Module& model, const AdapterConfig& config, const io::ModelFiles& files,
                          const TiedModules& tied = {});

// Returns the names of the parameters that belong into an adapter's file: LoRA factors, modules_to_save, and
// what the file that the adapter was read from carried.
std::vector<std::string> adapter_parameters(const torch::nn::Module& model, const LoraTargets& targets);

// Names the one file that holds an adapter's tensors: PEFT reads no shards.
io::ShardedSafetensorsWriter::Options adapter_weights();

// Plans the folder of an adapter. `table` is adapter_table() from before any sharding; `base_model` is what
// base_model_name_or_path shall say.
checkpoint::FolderPlan adapter_folder(checkpoint::StateDictAdapter table, const LoraOptions& options,
                                      const LoraTargets& targets, const std::string& base_model);

}  // namespace tessera::peft
