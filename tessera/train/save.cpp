#include "tessera/train/save.h"

#include <filesystem>
#include <optional>
#include <unordered_set>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/torch_dtype.h"
#include "tessera/io/file.h"
#include "tessera/io/json_reader.h"
#include "tessera/io/model_files.h"
#include "tessera/peft/adapter_files.h"
#include "tessera/train/first_rank.h"

namespace tessera::train {
namespace {

void save_config(const BaseFiles& base, DType dtype, const std::string& folder) {
  auto config = nlohmann::ordered_json::parse(base.config);
  const char* name = dtype == DType::F64 ? "float64" : "float32";
  // Both spellings: Transformers 5 reads `dtype`, older ones `torch_dtype`.
  config["torch_dtype"] = name;
  config["dtype"] = name;
  io::write_file_atomic(io::join_path(folder, "config.json"), config.dump(2) + "\n");
  if (!base.generation.empty()) {
    io::write_file_atomic(io::join_path(folder, "generation_config.json"), base.generation);
  }
}

// What the last update has spoilt must not pass for a model.
void check_finite(const std::string& name, const at::Tensor& value) {
  if (at::isfinite(value).all().item<bool>()) return;
  throw Error(ErrorKind::Numerics, "WEIGHT", "the trained weight '" + name + "' is not finite")
      .hint("nothing is saved; lower learning_rate, check the data, or set max_grad_norm");
}

// The parameters that the adapter's file holds.
std::unordered_set<std::string> saved_names(const TrainedModel& trained) {
  const auto names = peft::adapter_parameters(*trained.model, trained.adapter->targets);
  return {names.begin(), names.end()};
}

void save_model(const TrainedModel& trained, const BaseFiles& base, FirstRank& writing,
                const std::string& folder) {
  const auto& parameters = trained.sharded->parameters();
  std::optional<io::ShardedSafetensorsWriter> writer;
  writing.run([&] {
    std::vector<io::TensorSpec> specs;
    for (const auto& parameter : parameters) {
      specs.push_back({parameter.name, parameter.layout.dtype(), parameter.layout.shape()});
    }
    writer.emplace(folder, specs);
  });
  for (const auto& parameter : parameters) {
    const at::Tensor whole = trained.sharded->full_tensor(parameter);
    writing.run([&] {
      check_finite(parameter.name, whole);
      writer->write(parameter.name, 0, whole.const_data_ptr(), static_cast<int64_t>(whole.nbytes()));
    });
  }
  writing.run([&] {
    writer->commit();
    save_config(base, parameters.front().layout.dtype(), folder);
  });
}

void save_adapter(const TrainedModel& trained, const config::Recipe& recipe, FirstRank& writing,
                  const std::string& folder) {
  const std::unordered_set<std::string> names = saved_names(trained);
  std::vector<std::pair<std::string, at::Tensor>> values;
  for (const auto& parameter : trained.sharded->parameters()) {
    if (!names.contains(parameter.name)) continue;
    at::Tensor whole = trained.sharded->full_tensor(parameter);
    writing.run([&] {
      check_finite(parameter.name, whole);
      values.emplace_back(parameter.name, std::move(whole));
    });
  }
  writing.run([&] {
    const std::string base = std::filesystem::absolute(recipe.base_model).lexically_normal().string();
    peft::save_adapter(folder, trained.adapter->options, trained.adapter->targets, base, values);
  });
}

}  // namespace

BaseFiles read_base_files(const std::string& folder) {
  BaseFiles files;
  files.config = io::JsonReader::read_text(io::join_path(folder, "config.json"));
  const std::string generation = io::join_path(folder, "generation_config.json");
  if (io::exists(generation)) files.generation = io::JsonReader::read_text(generation);
  return files;
}

int64_t result_bytes(const TrainedModel& trained, const text::Tokenizer* tokenizer) {
  std::unordered_set<std::string> names;
  if (trained.adapter) names = saved_names(trained);
  int64_t bytes = tokenizer != nullptr ? tokenizer->saved_bytes() : 0;
  for (const auto& parameter : trained.sharded->parameters()) {
    if (trained.adapter && !names.contains(parameter.name)) continue;
    bytes += parameter.layout.numel() * dtype_size(parameter.layout.dtype());
  }
  return bytes;
}

void save_result(const TrainedModel& trained, const config::Recipe& recipe, const BaseFiles& base,
                 const text::Tokenizer* tokenizer, comm::Communicator& world, const std::string& folder) {
  FirstRank writing(world, "save the result");
  if (trained.adapter) {
    save_adapter(trained, recipe, writing, folder);
  } else {
    save_model(trained, base, writing, folder);
  }
  writing.run([&] {
    if (tokenizer != nullptr) tokenizer->save(folder);
  });
  writing.finish();
}

}  // namespace tessera::train
