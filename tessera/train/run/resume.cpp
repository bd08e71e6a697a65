#include "tessera/train/run/resume.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <sstream>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/comm/agreed_work.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/mismatch_list.h"
#include "tessera/io/checkpoint_folders.h"
#include "tessera/io/file.h"
#include "tessera/io/json_values.h"
#include "tessera/train/run/changed_keys.h"
#include "tessera/train/setup/compute_type.h"
#include "tessera/train/step/training.h"

namespace tessera::train {
namespace {

using checkpoint::ShardedCheckpoint;
using Opened = std::shared_ptr<const ShardedCheckpoint>;

std::string noted(const ShardedCheckpoint& checkpoint, const char* key) {
  return checkpoint.manifest().state.value(key, std::string());
}

// Tells whether the values of an object have the types of their namesakes in `like`. An integer may stand for
// a fraction, which loses its point when it is whole.
bool has_types_of(const nlohmann::ordered_json& like, const nlohmann::ordered_json& json) {
  if (!like.is_object()) {
    if (like.is_number_float()) return json.is_number();
    if (like.is_number_integer()) return io::integer_of(json).has_value();
    return json.type() == like.type();
  }
  if (!json.is_object()) return false;
  for (const auto& [key, value] : like.items()) {
    if (json.contains(key) && !has_types_of(value, json.at(key))) return false;
  }
  return true;
}

Error unsound(const ShardedCheckpoint& checkpoint, const std::string& what) {
  Error error(ErrorKind::Checkpoint, "MANIFEST", "the manifest is not sound: " + what);
  error.in(checkpoint.place());
  return error;
}

// Returns what `work` throws as an Error about a bad file, on the first rank where it throws; empty where all
// went well on all ranks. Collective.
std::string fault_of(comm::Communicator& world, const std::function<void()>& work) {
  std::string own;
  try {
    work();
  } catch (const Error& error) {
    own = error.what();
  }
  for (const std::string& fault : world.all_gather_string(own)) {
    if (!fault.empty()) return fault;
  }
  return "";
}

// Opens a checkpoint and verifies this rank's share of its values. Not collective.
Opened open_part(const std::string& path, const comm::Communicator& world) {
  const Opened checkpoint = ShardedCheckpoint::open(path);
  check_notes(*checkpoint);
  checkpoint->verify(world.rank(), world.size());
  return checkpoint;
}

}  // namespace

nlohmann::ordered_json to_json(const RunInputs& inputs) {
  return {{"recipe", inputs.recipe},       {"dtype", inputs.dtype},
          {"rows", inputs.rows},           {"model", inputs.model},
          {"libraries", inputs.libraries}, {"global_batch_size", inputs.global_batch_size}};
}

bool continues_output(const config::CheckpointConfig& keys) {
  if (keys.resume_from_checkpoint.empty()) return keys.auto_resume_from_checkpoints;
  namespace fs = std::filesystem;
  std::error_code failed;
  const fs::path named = fs::weakly_canonical(keys.resume_from_checkpoint, failed);
  const fs::path folder = named.has_filename() ? named.parent_path() : named.parent_path().parent_path();
  return folder == fs::weakly_canonical(keys.output_dir, failed);
}

Opened find_checkpoint(const config::CheckpointConfig& keys, comm::Communicator& world) {
  Opened found;
  if (!keys.resume_from_checkpoint.empty()) {
    found = open_checkpoint(keys.resume_from_checkpoint, world);
  } else if (keys.auto_resume_from_checkpoints) {
    // All ranks take the list of the first one, so that they open the same checkpoints in the same order.
    std::string names;
    comm::AgreedWork work({&world}, "list the checkpoints");
    work.run_on_first([&] {
      for (const auto& folder : io::list_checkpoints(keys.output_dir)) names += folder.name + '\n';
    });
    work.finish();
    std::istringstream candidates(world.all_gather_string(names).front());
    std::string fault;
    for (std::string name; !found && std::getline(candidates, name);) {
      Opened checkpoint;
      const std::string path = io::join_path(keys.output_dir, name);
      fault = fault_of(world, [&] { checkpoint = open_part(path, world); });
      if (fault.empty()) {
        found = checkpoint;
      } else {
        log::warn(path + " is incomplete or damaged and is skipped: " + fault);
      }
    }
    if (!found && !fault.empty()) {
      throw Error(ErrorKind::Checkpoint, "NONE-WHOLE", "no checkpoint is complete")
          .in(keys.output_dir)
          .hint("to start from the beginning, move them away; the warnings above say what is wrong");
    }
  }
  if (found) {
    log::info("resuming from " + found->place() + ", after step " + std::to_string(found->manifest().step));
  }
  return found;
}

Opened open_checkpoint(const std::string& path, comm::Communicator& world) {
  Opened opened;
  comm::AgreedWork work({&world}, "read the checkpoint");
  work.run([&] { opened = open_part(path, world); });
  work.finish();
  return opened;
}

config::Recipe with_dtype_of(config::Recipe recipe, const ShardedCheckpoint& checkpoint) {
  if (recipe.dtype != config::ComputeType::Auto) return recipe;
  for (const auto type : {config::ComputeType::Float32, config::ComputeType::Float64,
                          config::ComputeType::BFloat16, config::ComputeType::Float16}) {
    if (compute_name(type) == noted(checkpoint, "dtype")) recipe.dtype = type;
  }
  return recipe;
}

config::Recipe with_batch_of(config::Recipe recipe, const ShardedCheckpoint& checkpoint, int64_t readers) {
  const int64_t before = checkpoint.manifest().state.value("global_batch_size", int64_t{0});
  const int64_t at_once = recipe.micro_batch_size * readers;
  const int64_t own = at_once * recipe.gradient_accumulation_steps;
  if (before == 0 || before == own) return recipe;  // 0: an older program noted none
  const std::string change = "global_batch_size: " + std::to_string(own);
  if (recipe.global_batch_size > 0) {
    log::warn("the run continues with another " + change + " sequences per step instead of " +
              std::to_string(before) + ": from here on it is a different run");
    return recipe;
  }
  const int64_t rows = before / readers, parts = std::max<int64_t>(1, recipe.pipeline_microbatches);
  if (before % at_once != 0 || rows % parts != 0) {
    throw recipe
        .error("GLOBAL-BATCH", "the global batch of the checkpoint's run cannot be kept",
               {"micro_batch_size", "gradient_accumulation_steps"})
        .got("micro_batch_size " + std::to_string(recipe.micro_batch_size) + " x " + std::to_string(readers) +
             (readers == 1 ? " rank" : " ranks") +
             (parts > 1 ? " and pipeline_microbatches " + std::to_string(parts) : ""))
        .need("a divisor of the " + std::to_string(before) + " sequences per step of " + checkpoint.place())
        .hint("choose another micro_batch_size or number of ranks to keep it; " + change +
              " continues with that many");
  }
  log::info("the global batch stays at the " + std::to_string(before) +
            " sequences per step of the checkpoint's run: gradient_accumulation_steps is " +
            std::to_string(before / at_once) + ", not " + std::to_string(recipe.gradient_accumulation_steps) +
            "; " + change + " would change it");
  recipe.gradient_accumulation_steps = before / at_once;
  return recipe;
}

void check_resumable(const ShardedCheckpoint& checkpoint, const RunInputs& inputs, const ModelSetup& setup,
                     const config::CheckpointConfig& keys) {
  if (checkpoint.manifest().state.value("only_model", false)) {
    throw Error(ErrorKind::Checkpoint, "ONLY-MODEL", "the checkpoint was saved with save_only_model: true")
        .in(checkpoint.place())
        .need("the optimizer states, to resume with the same results")
        .hint("`tessera convert` turns it into a model folder for base_model or lora_model_dir");
  }
  if (noted(checkpoint, "rows") != inputs.rows && keys.allow_data_change) {
    log::warn(
        "the run continues from the same position with other training rows than its checkpoint "
        "(allow_data_change): from here on it is a different run");
  } else if (noted(checkpoint, "rows") != inputs.rows) {
    throw Error(ErrorKind::Data, "CHANGED",
                "the training rows, or their order, are not those of the checkpoint's run")
        .in(checkpoint.place())
        .got("hash " + inputs.rows)
        .need(noted(checkpoint, "rows"))
        .hint(
            "datasets, tokenizer, seed, sequence_len and sample_packing must not change; allow_data_change: "
            "true resumes anyway");
  }
  check_same_parameters(checkpoint, inputs.model, setup);
  const auto warn = [](const std::string& key, const std::string& before, const std::string& now) {
    if (before == now) return;
    const bool is_line = (before + now).find('\n') == std::string::npos;
    const auto shown = [](const std::string& value) { return value.empty() ? "its default" : value; };
    log::warn("the run continues with another " + key +
              (is_line ? ": " + shown(now) + " instead of " + shown(before) : ""));
  };
  if (!noted(checkpoint, "dtype").empty()) warn("dtype", noted(checkpoint, "dtype"), inputs.dtype);
  for (const ChangedKey& key : changed_keys(noted(checkpoint, "recipe"), inputs.recipe))
    warn(key.name, key.before, key.now);
}

void check_same_parameters(const ShardedCheckpoint& checkpoint, const std::string& model_fingerprint,
                           const ModelSetup& setup) {
  if (noted(checkpoint, "model") != model_fingerprint) {
    throw Error(ErrorKind::Checkpoint, "OTHER-MODEL", "the base model is not that of the checkpoint's run")
        .in(checkpoint.place())
        .got("hash " + model_fingerprint)
        .need(noted(checkpoint, "model"));
  }
  MismatchList wrong({"missing in it", "not used by this run", "of another shape"});
  const auto parameters = setup.model->named_parameters();
  const auto is_changed = [&](const std::string& name, const at::Tensor& parameter) {
    return parameter.requires_grad() || setup.folded.contains(name);
  };
  for (const auto& parameter : parameters) {
    const bool is_stored = checkpoint.find(kParameterPrefix + parameter.key()) != nullptr;
    if (is_changed(parameter.key(), parameter.value()) && !is_stored)
      wrong.add("missing in it", parameter.key());
  }
  for (const io::TensorSpec& stored : checkpoint.tensors()) {
    if (!stored.name.starts_with(kParameterPrefix)) continue;
    const std::string name = stored.name.substr(std::string(kParameterPrefix).size());
    const at::Tensor* own = parameters.find(name);
    if (own == nullptr || !is_changed(name, *own)) {
      wrong.add("not used by this run", stored.name);
    } else if (own->sizes() != at::IntArrayRef(stored.shape)) {
      wrong.add("of another shape", stored.name);
    }
  }
  if (!wrong.empty()) {
    throw Error(ErrorKind::Checkpoint, "TENSORS", "the checkpoint belongs to another model or adapter")
        .in(checkpoint.place())
        .got(wrong.text());
  }
}

void take_values_of(const std::shared_ptr<const checkpoint::ShardedCheckpoint>& checkpoint,
                    PlannedModel& planned) {
  planned.source = std::make_shared<checkpoint::SourceList>(
      std::vector<std::shared_ptr<const checkpoint::ParameterSource>>{
          checkpoint::checkpoint_source(checkpoint, kParameterPrefix), planned.source});
}

TrainState state_of(const ShardedCheckpoint& checkpoint) {
  try {
    return train_state_from(checkpoint.manifest().state.at("training"));
  } catch (const nlohmann::json::exception& error) {
    throw unsound(checkpoint, error.what());
  }
}

void check_notes(const ShardedCheckpoint& checkpoint) {
  auto notes = to_json(RunInputs());
  notes["training"] = to_json(TrainState());
  notes[kOwesEvaluation] = false;
  notes["only_model"] = false;
  notes[kForRestart] = false;
  for (const auto& [key, value] : notes.items()) {
    const auto found = checkpoint.manifest().state.find(key);
    if (found == checkpoint.manifest().state.end() || has_types_of(value, *found)) continue;
    throw unsound(checkpoint, "a value of another type in '" + key + "' of its state");
  }
  const int64_t step = checkpoint.manifest().step, own = state_of(checkpoint).step;
  if (own == step) return;
  throw unsound(checkpoint, "its state is of step " + std::to_string(own) + ", not " + std::to_string(step));
}

}  // namespace tessera::train
