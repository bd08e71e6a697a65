// Adapters with values, on the models of Hugging Face's reference files and in folders.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/checkpoint/random_source.h"
#include "tessera/io/file.h"
#include "tessera/parallel/box_part.h"
#include "tessera/peft/adapter_files.h"
#include "tessera/peft/adapter_start.h"

#include "tests/models/reference_models.h"

namespace tessera::peft {

using models::reference_folder;

inline at::Tensor logits_of(models::CausalLM& model) {
  const at::NoGradGuard no_grad;
  model.eval();
  return model.logits(models::pack_ids(at::arange(3, 20)));
}

inline std::shared_ptr<const checkpoint::ParameterSource> files_of(const models::CausalLM& plain,
                                                                   const std::string& family) {
  const auto files = std::make_shared<const io::ModelFiles>(io::ModelFiles::open(reference_folder(family)));
  return checkpoint::stored_source(checkpoint::stored_tensors(files), models::state_dict_adapter(plain));
}

// Puts an adapter on the model of a family and gives it its first values.
inline LoraTargets start_adapter(models::CausalLM& model, const std::string& family,
                                 const LoraOptions& options) {
  const auto base = files_of(*models::build_model(reference_folder(family), at::kDouble), family);
  const LoraTargets targets = apply_lora(model, options);
  const auto values = std::make_shared<checkpoint::SourceList>(
      std::vector<std::shared_ptr<const checkpoint::ParameterSource>>{base, models::random_source(model, 3)});
  checkpoint::materialize(model, *with_adapter_start(values, model, options, targets));
  return targets;
}

inline void add_noise(models::CausalLM& model, const LoraTargets& targets) {
  const at::NoGradGuard no_grad;
  at::manual_seed(8);
  auto parameters = model.named_parameters();
  for (const std::string& name : adapter_parameters(model, targets)) {
    if (parameters[name].requires_grad()) parameters[name].add_(at::randn_like(parameters[name]), 0.1);
  }
}

// Writes an adapter as a single process does.
inline void save_adapter(const std::string& folder, const models::CausalLM& model, const LoraOptions& options,
                         const LoraTargets& targets) {
  const auto plan = adapter_folder(adapter_table(model, targets), options, targets, "base");
  std::vector<io::TensorSpec> specs;
  std::map<std::string, at::Tensor> tensors;
  for (const auto& tensor : plan.table.stored_tensors()) {
    specs.push_back({tensor.name, DType::F64, tensor.shape});
    tensors[tensor.name] = at::zeros(tensor.shape, at::kDouble);
  }
  for (const auto& [name, value] : plan.constants) {
    specs.push_back({name, DType::F32, value.sizes().vec()});
    tensors[name] = value;
  }
  const auto parameters = model.named_parameters();
  for (const auto& entry : plan.table.parameters()) {
    for (const auto& overlaps : plan.table.overlaps(entry.name, checkpoint::whole_box(entry.shape))) {
      for (const auto& overlap : overlaps) {
        parallel::box_part(tensors[overlap.part->name], overlap.stored)
            .copy_(overlap.view(parameters[entry.name].detach()));
      }
    }
  }
  io::ShardedSafetensorsWriter writer(folder, specs, plan.weights);
  for (const auto& [name, value] : tensors)
    writer.write(name, 0, value.const_data_ptr(), static_cast<int64_t>(value.nbytes()));
  writer.commit();
  for (const auto& [name, text] : plan.files) io::write_file_atomic(io::join_path(folder, name), text);
}

inline LoraOptions options_of(const std::string& family) {
  LoraOptions options;
  options.rank = 3;
  options.alpha = 5.0;
  options.target_modules = family == "gpt2" ? std::vector<std::string>{"c_attn", "c_fc", "c_proj"}
                                            : std::vector<std::string>{"q_proj", "v_proj", "down_proj"};
  return options;
}

// Writes an adapter with random values of a family's model.
inline void write_adapter(const std::string& folder, const std::string& family, const LoraOptions& options) {
  const auto model = models::build_model(reference_folder(family), at::kDouble);
  const LoraTargets targets = start_adapter(*model, family, options);
  add_noise(*model, targets);
  save_adapter(folder, *model, options, targets);
}

}  // namespace tessera::peft
