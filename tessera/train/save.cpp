#include "tessera/train/save.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

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

// The work of the rank that writes. Its first error ends the writing but not the gathering, in which all
// ranks take part; finish() then throws it on every rank.
class Writing {
 public:
  explicit Writing(comm::Communicator& world) : world_(world) {}

  void run(const std::function<void()>& work) {
    if (world_.rank() != 0 || error_ != nullptr) return;
    try {
      work();
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  void finish() {
    std::string text;
    try {
      if (error_ != nullptr) std::rethrow_exception(error_);
    } catch (const std::exception& error) {
      text = error.what();
    }
    const std::string told = world_.all_gather_string(text).front();
    if (error_ != nullptr) std::rethrow_exception(error_);
    if (!told.empty()) throw Error(ErrorKind::Storage, "SAVE", "rank 0 could not save the result: " + told);
  }

 private:
  comm::Communicator& world_;
  std::exception_ptr error_;
};

void save_model(const TrainedModel& trained, const config::Recipe& recipe, Writing& writing,
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
      writer->write(parameter.name, 0, whole.const_data_ptr(), static_cast<int64_t>(whole.nbytes()));
    });
  }
  writing.run([&] {
    writer->commit();
    save_config(recipe, parameters.front().layout.dtype(), folder);
  });
}

void save_adapter(const TrainedModel& trained, const config::Recipe& recipe, Writing& writing,
                  const std::string& folder) {
  const std::vector<std::string> names = peft::adapter_parameters(*trained.model, trained.adapter->targets);
  std::vector<std::pair<std::string, at::Tensor>> values;
  for (const auto& parameter : trained.sharded->parameters()) {
    if (std::find(names.begin(), names.end(), parameter.name) == names.end()) continue;
    at::Tensor whole = trained.sharded->full_tensor(parameter);
    writing.run([&] { values.emplace_back(parameter.name, std::move(whole)); });
  }
  writing.run([&] {
    const std::string base = std::filesystem::absolute(recipe.base_model).lexically_normal().string();
    peft::save_adapter(folder, trained.adapter->options, trained.adapter->targets, base, values);
  });
}

}  // namespace

void save_result(const TrainedModel& trained, const config::Recipe& recipe, const data::Tokenizer* tokenizer,
                 comm::Communicator& world, const std::string& folder) {
  Writing writing(world);
  writing.run([&] { io::make_directories(folder); });
  if (trained.adapter) {
    save_adapter(trained, recipe, writing, folder);
  } else {
    save_model(trained, recipe, writing, folder);
  }
  writing.run([&] {
    if (tokenizer != nullptr) tokenizer->save(folder);
  });
  writing.finish();
}

}  // namespace tessera::train
