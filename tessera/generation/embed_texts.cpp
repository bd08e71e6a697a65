#include "tessera/generation/embed_texts.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/device/device.h"
#include "tessera/device/device_copy.h"
#include "tessera/io/file.h"
#include "tessera/io/json_reader.h"
#include "tessera/io/run_inputs.h"

namespace tessera::generation {
namespace {

// Returns the pooling of sentence-transformers' configuration; nothing if it is another one. Older files have
// a flag for each mode.
std::optional<Pooling> read_pooling_file(const std::string& file) {
  const io::JsonReader reader = io::JsonReader::open(file);
  std::vector<std::string> modes;
  if (reader.is_text("pooling_mode")) modes.push_back(reader.text("pooling_mode"));
  for (const char* mode : {"cls_token", "mean_tokens", "lasttoken", "max_tokens", "mean_sqrt_len_tokens",
                           "weightedmean_tokens"}) {
    if (reader.boolean(std::string("pooling_mode_") + mode, false)) modes.emplace_back(mode);
  }
  if (modes.size() != 1) return std::nullopt;
  if (modes[0] == "cls" || modes[0] == "cls_token") return Pooling::Cls;
  if (modes[0] == "mean" || modes[0] == "mean_tokens") return Pooling::Mean;
  if (modes[0] == "lasttoken") return Pooling::Last;
  return std::nullopt;
}

// Returns the modules of the file, by the last parts of their types, with their folders.
std::vector<std::pair<std::string, std::string>> read_modules(const std::string& file) {
  const auto all =
      nlohmann::json::parse(io::JsonReader::read_text(file), nullptr, /*allow_exceptions=*/false);
  std::vector<std::pair<std::string, std::string>> modules;
  const auto is_module = [](const nlohmann::json& one) {
    return one.is_object() && one.contains("type") && one["type"].is_string() && one.contains("path") &&
           one["path"].is_string();
  };
  if (!all.is_array() || !std::ranges::all_of(all, is_module)) {
    throw Error(ErrorKind::Model, "CONFIG", "not a list of modules, each with a type and a path").at(file);
  }
  for (const nlohmann::json& one : all) {
    const std::string type = one["type"];
    modules.emplace_back(type.substr(type.rfind('.') + 1), one["path"]);
  }
  return modules;
}

}  // namespace

Pooling read_pooling(const std::string& name) {
  if (name == "cls") return Pooling::Cls;
  if (name == "last") return Pooling::Last;
  if (name == "mean") return Pooling::Mean;
  throw Error(ErrorKind::Config, "POOLING", "there is no such pooling").got(name).need("cls, last or mean");
}

EmbeddingOptions embedding_options(const models::CausalLM& model, const std::string& folder,
                                   std::optional<Pooling> chosen) {
  EmbeddingOptions options;
  options.pooling = chosen.value_or(model.config().is_encoder ? Pooling::Cls : Pooling::Last);
  if (model.num_virtual_tokens() > 0) options.refusal = "its adapter puts virtual tokens before each text";
  const std::string file = io::join_path(folder, "modules.json");
  if (!io::is_folder(folder) || !io::exists(file)) return options;
  for (const auto& [type, path] : read_modules(file)) {
    if (type == "Pooling" && !chosen) {
      const auto found = read_pooling_file(io::join_path(io::join_path(folder, path), "config.json"));
      if (!found) options.refusal = "its files ask for a pooling other than --pooling can set";
      options.pooling = found.value_or(options.pooling);
    } else if (type != "Transformer" && type != "Pooling" && type != "Normalize") {
      options.refusal = "its modules.json has a module '" + type + "', which is not implemented";
    }
  }
  return options;
}

at::Tensor embed_texts(models::CausalLM& model, const std::vector<std::vector<int64_t>>& texts,
                       Pooling pooling, int64_t adapter) {
  const c10::InferenceMode inference;
  std::vector<int64_t> ids, positions, rows;
  nn::TokenBatch batch;
  batch.document_starts = {0};
  for (const std::vector<int64_t>& text : texts) {
    TESSERA_ASSERT(!text.empty(), "a text to embed has a token");
    rows.push_back(pooling == Pooling::Cls ? std::ssize(ids) : std::ssize(ids) + std::ssize(text) - 1);
    positions.resize(ids.size() + text.size());
    std::iota(positions.begin() + std::ssize(ids), positions.end(), int64_t{0});
    ids.insert(ids.end(), text.begin(), text.end());
    batch.document_starts.push_back(std::ssize(ids));
  }
  batch.input_ids = at::tensor(ids, on_host(at::kLong));
  batch.position_ids = at::tensor(positions, on_host(at::kLong));
  const at::Tensor hidden = model.last_hidden_states(batch, adapter);
  if (pooling != Pooling::Mean)
    return hidden.index_select(0, copy_to(at::tensor(rows, on_host(at::kLong)), hidden.device()));
  // Sums of narrow types would lose digits.
  const at::ScalarType type = hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  std::vector<at::Tensor> means;
  for (size_t i = 0; i < texts.size(); ++i) {
    const int64_t begin = batch.document_starts[i];
    means.push_back(hidden.narrow(0, begin, batch.document_starts[i + 1] - begin).mean(0, false, type));
  }
  return at::stack(means);
}

}  // namespace tessera::generation
