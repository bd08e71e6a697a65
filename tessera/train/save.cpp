#include "tessera/train/save.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "tessera/core/error.h"
#include "tessera/core/torch_dtype.h"
#include "tessera/io/file.h"
#include "tessera/io/model_files.h"
#include "tessera/peft/adapter_files.h"

namespace tessera::train {
namespace {

constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;

void save_config(const config::Recipe& recipe, DType dtype, const std::string& folder) {
  auto config = nlohmann::ordered_json::parse(
      io::read_file(io::join_path(recipe.base_model, "config.json"), kMaxConfigBytes));
  const char* name = dtype == DType::F64 ? "float64" : "float32";
  // Both spellings: Transformers 5 reads `dtype`, older ones `torch_dtype`.
  config["torch_dtype"] = name;
  config["dtype"] = name;
  io::write_file_atomic(io::join_path(folder, "config.json"), config.dump(2) + "\n");
  const std::string generation = io::join_path(recipe.base_model, "generation_config.json");
  if (io::exists(generation)) {
    io::write_file_atomic(io::join_path(folder, "generation_config.json"),
                          io::read_file(generation, kMaxConfigBytes));
  }
}

void save_model(const TrainedModel& trained, const config::Recipe& recipe, bool is_writer, const std::string& folder) {
  const auto& parameters = trained.sharded->parameters();
  std::optional<io::ShardedSafetensorsWriter> writer;
  if (is_writer) {
    std::vector<io::TensorSpec> specs;
    for (const auto& parameter : parameters) {
      specs.push_back({parameter.name, parameter.layout.dtype(), parameter.layout.shape()});
    }
    writer.emplace(folder, specs);
  }
  for (const auto& parameter : parameters) {
    const at::Tensor whole = trained.sharded->full_tensor(parameter);
    if (is_writer) writer->write(parameter.name, 0, whole.const_data_ptr(), static_cast<int64_t>(whole.nbytes()));
  }
  if (!is_writer) return;
  save_config(recipe, parameters.front().layout.dtype(), folder);
  writer->commit();
}

void save_adapter(const TrainedModel& trained, const config::Recipe& recipe, bool is_writer,
                  const std::string& folder) {
  const std::vector<std::string> names = peft::adapter_parameters(*trained.model, trained.adapter->targets);
  std::vector<std::pair<std::string, at::Tensor>> values;
  for (const auto& parameter : trained.sharded->parameters()) {
    if (std::find(names.begin(), names.end(), parameter.name) == names.end()) continue;
    at::Tensor whole = trained.sharded->full_tensor(parameter);
    if (is_writer) values.emplace_back(parameter.name, std::move(whole));
  }
  if (!is_writer) return;
  const std::string base = std::filesystem::absolute(recipe.base_model).lexically_normal().string();
  peft::save_adapter(folder, trained.adapter->options, trained.adapter->targets, base, values);
}

}  // namespace

void save_result(const TrainedModel& trained, const config::Recipe& recipe, const data::Tokenizer& tokenizer,
                 comm::Communicator& world, const std::string& folder) {
  const bool is_writer = world.rank() == 0;
  if (is_writer) io::make_directories(folder);
  if (trained.adapter) {
    save_adapter(trained, recipe, is_writer, folder);
  } else {
    save_model(trained, recipe, is_writer, folder);
  }
  if (is_writer) tokenizer.save(folder);
  world.barrier();
}

}  // namespace tessera::train
