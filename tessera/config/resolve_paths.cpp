#include "tessera/config/resolve_paths.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <glob.h>

#include "tessera/config/entry_error.h"
#include "tessera/config/hub_datasets.h"
#include "tessera/core/error.h"
#include "tessera/hub/fetch.h"
#include "tessera/io/file.h"
#include "tessera/io/run_inputs.h"

namespace tessera::config {
namespace {

namespace fs = std::filesystem;

Error path_error(const Recipe& recipe, std::string_view name, const std::string& what, const std::string& key,
                 const std::string& path) {
  return key_error(recipe, name, key, what).got(path);
}

// Returns the absolute path, without "." and ".." unless removing a ".." would name another place (it follows
// a symbolic link).
std::string absolute_path(const std::string& path) {
  if (path.empty()) return path;
  const fs::path whole = fs::absolute(path), plain = whole.lexically_normal();
  std::error_code ignored;
  const bool is_same = path.find("..") == std::string::npos || fs::equivalent(whole, plain, ignored);
  std::string text = (is_same ? plain : whole).string();
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return text;
}

bool is_inline_template(const std::string& text) {
  return text.empty() || text.find('\n') != std::string::npos || text.find("{{") != std::string::npos ||
         text.find("{%") != std::string::npos;
}

bool is_remote(const std::string& path) { return path.find("://") != std::string::npos; }

// Refuses an adapter's folder as a model, and a model's folder as an adapter: both are folders, and easily
// taken for one another.
void check_kind(const Recipe& recipe, const std::string& key, const std::string& path) {
  const auto has = [&](const char* name) { return io::exists(fs::path(path) / name); };
  const bool is_adapter = has("adapter_config.json"), is_model = has("config.json");
  if (key == "base_model" && is_adapter && !is_model) {
    throw path_error(recipe, "NOT-A-MODEL", "the folder contains an adapter, not a model", key, path)
        .need("a folder with config.json")
        .hint("to continue training the adapter, write lora_model_dir: " + path +
              " and name its base model here; tessera merge turns both into a model");
  }
  if (key == "lora_model_dir" && is_model && !is_adapter) {
    throw path_error(recipe, "NOT-AN-ADAPTER", "the folder contains a model, not an adapter", key, path)
        .need("a folder with adapter_config.json")
        .hint("name a model to start from with base_model");
  }
}

// Runs `fetch`, and has its error name the key. What is no name of the hub may have been meant as a path.
template <class Fetch>
auto fetched(const Recipe& recipe, const std::string& key, const Fetch& fetch) {
  try {
    return fetch();
  } catch (Error& error) {
    if (error.kind() == ErrorKind::Config || error.code().starts_with("E-STORAGE-HUB"))
      error.at(recipe.place_of({key})).within("key '" + key + "': no such path");
    throw;
  }
}

// Finds or fetches a model of the hub, where `path` names one.
void fetch_folder(const Recipe& recipe, const std::string& key, std::string& path) {
  const std::string revision = key == "base_model" ? recipe.revision_of_model : "";
  const hub::Want want = key == "base_model"       ? hub::Want::Model
                         : key == "lora_model_dir" ? hub::Want::Adapter
                                                   : hub::Want::Tokenizer;
  const auto found = fetched(recipe, key, [&] { return hub::fetch_model(path, revision, want); });
  if (!found) {
    throw path_error(recipe, "NOT-FOUND", "no such folder", key, path)
        .need("a local folder, or the name of a model on the hub, as org/name");
  }
  path = *found;
  if (io::is_folder(path)) check_kind(recipe, key, path);
}

// Returns whether the path is settled; a name of the hub is not.
bool resolve_folder(const Recipe& recipe, const std::string& key, std::string& path) {
  if (path.empty()) return true;
  path = resolve_path(path, recipe.source_folder);
  if (io::is_folder(path)) {
    check_kind(recipe, key, path);
    return true;
  }
  const bool takes_gguf = key != "lora_model_dir";
  if (takes_gguf && path.ends_with(".gguf") && io::exists(path)) return true;
  if (io::exists(path)) {
    throw path_error(recipe, "NOT-A-FOLDER", "not a folder", key, path)
        .need(takes_gguf ? "a folder with config.json, or a GGUF file (.gguf)"
                         : "a folder with adapter_config.json");
  }
  return false;
}

void resolve_template(Recipe& recipe, std::string& text) {
  if (!is_inline_template(text)) text = resolve_path(text, recipe.source_folder);
}

bool is_builder_name(const std::string& path) {
  return path == "json" || path == "text" || path == "csv" || path == "parquet" || path == "arrow";
}

bool is_pattern(const std::string& path) { return path.find_first_of("*?[") != std::string::npos; }

// Returns the pattern, as seen from the current folder or else from `folder`, if it matches a file; "" if it
// matches nothing.
std::string resolve_pattern(const std::string& pattern, const std::string& folder) {
  for (const fs::path& path : {fs::path(pattern), fs::path(folder) / pattern}) {
    glob_t found = {};
    const bool matches = ::glob(path.c_str(), GLOB_NOSORT, nullptr, &found) == 0;
    ::globfree(&found);
    if (matches) return path.lexically_normal().string();
  }
  return "";
}

// Returns the folders of a path before its first part that is a pattern.
fs::path plain_parent(const fs::path& path) {
  fs::path parent;
  for (const fs::path& part : path.parent_path()) {
    if (is_pattern(part.string())) break;
    parent /= part;
  }
  return parent;
}

// Turns "path: json, data_files: [a/x.jsonl, b/y.jsonl]" into "path: <common folder>" with data_files below
// it.
void resolve_builder(Recipe& recipe, DatasetConfig& dataset, const std::string& key) {
  if (dataset.ds_type.empty()) dataset.ds_type = dataset.path;
  fs::path common;
  std::vector<fs::path> files;
  for (const std::string& name : dataset.data_files) {
    std::string found = resolve_path(name, recipe.source_folder);
    if (!io::exists(found)) found = is_pattern(name) ? resolve_pattern(name, recipe.source_folder) : "";
    if (found.empty()) throw path_error(recipe, "NOT-FOUND", "no such file", key + "data_files", name);
    files.push_back(fs::absolute(found).lexically_normal());
    const fs::path parent = plain_parent(files.back());
    if (files.size() == 1) {
      common = parent;
      continue;
    }
    fs::path shared;
    const auto ends = std::mismatch(common.begin(), common.end(), parent.begin(), parent.end());
    for (auto part = common.begin(); part != ends.first; ++part) shared /= *part;
    common = shared;
  }
  dataset.path = common.string();
  dataset.data_files.clear();
  for (const fs::path& file : files) dataset.data_files.push_back(file.lexically_relative(common).string());
}

// Returns whether the path is settled; a name of the hub is not.
bool resolve_dataset(Recipe& recipe, DatasetConfig& dataset, const std::string& key) {
  resolve_template(recipe, dataset.chat_template_jinja);
  const std::string found = resolve_path(dataset.path, recipe.source_folder);
  if (io::exists(found)) {
    dataset.path = found;
    return true;
  }
  if (is_builder_name(dataset.path) && !dataset.data_files.empty()) {
    resolve_builder(recipe, dataset, key);
    return true;
  }
  if (is_pattern(dataset.path) && !is_remote(dataset.path)) {
    const std::string pattern = resolve_pattern(dataset.path, recipe.source_folder);
    if (pattern.empty())
      throw path_error(recipe, "NOT-FOUND", "no file matches the pattern", key + "path", dataset.path);
    dataset.path = pattern;
    return true;
  }
  if (is_remote(dataset.path)) {
    throw path_error(recipe, "NOT-FOUND", "remote data is not supported", key + "path", dataset.path)
        .need("a local file or folder, or the name of a dataset on the hub")
        .hint("download it and give its path");
  }
  return false;
}

// Finds or fetches the dataset of the hub that the entry's path names.
void fetch_entry(const Recipe& recipe, DatasetConfig& dataset, const std::string& key) {
  std::optional<std::string> snapshot;
  if (is_dataset_name(dataset.path)) {
    snapshot = fetched(recipe, key + "path", [&] { return fetch_dataset(dataset); });
  } else {
    snapshot = hub::find_snapshot({hub::Kind::Dataset, dataset.path, dataset.revision});
  }
  if (!snapshot) {
    throw path_error(recipe, "NOT-FOUND", "no such file or folder", key + "path", dataset.path)
        .need("a local file or folder, or the name of a dataset on the hub, as org/name");
  }
  dataset.hub_id = dataset.path;
  dataset.path = *snapshot;
}

}  // namespace

std::string resolve_path(const std::string& path, const std::string& folder) {
  if (fs::path(path).is_absolute() || io::exists(path)) return path;
  const fs::path beside = fs::path(folder) / path;
  return io::exists(beside) ? beside.lexically_normal().string() : path;
}

bool is_task_file(const std::string& name) {
  return name.ends_with(".yaml") || name.ends_with(".yml") || name.find('/') != std::string::npos;
}

std::string table_format(const std::string& path) {
  const std::string extension = fs::path(path).extension().string();
  if (extension == ".csv" || extension == ".tsv") return "csv";
  if (extension == ".parquet") return "parquet";
  if (extension == ".arrow" || extension == ".feather") return "arrow";
  return "";
}

std::string conversion_hint(const std::string& path) {
  const std::string format = table_format(path);
  std::string reader = "read_" +
                       (format == "arrow" ? "feather"
                        : format.empty()  ? "csv"
                                          : format) +
                       "('" + path + "'" + (path.ends_with(".tsv") ? ", sep='\\t'" : "") + ")";
  return "convert it to JSON Lines, for example with pandas: python3 -c \"import pandas; pandas." + reader +
         ".to_json('" + fs::path(path).replace_extension(".jsonl").string() +
         "', orient='records', lines=True)\"";
}

Recipe with_absolute_paths(Recipe recipe) {
  for (std::string* path :
       {&recipe.base_model, &recipe.tokenizer_config, &recipe.lora_model_dir, &recipe.output_dir,
        &recipe.dataset_prepared_path, &recipe.resume_from_checkpoint, &recipe.prometheus_file,
        &recipe.offload_optimizer_nvme_path, &recipe.eval_tasks_data}) {
    *path = absolute_path(*path);
  }
  for (std::string& task : recipe.eval_tasks) {
    if (is_task_file(task)) task = absolute_path(task);
  }
  if (!recipe.mlflow_tracking_uri.starts_with("file:"))
    recipe.mlflow_tracking_uri = absolute_path(recipe.mlflow_tracking_uri);
  // A cluster is a file, or a name such as 8xH100.
  if (io::exists(recipe.cluster)) recipe.cluster = absolute_path(recipe.cluster);
  const auto settle_template = [](std::string& text) {
    if (!is_inline_template(text)) text = absolute_path(text);
  };
  settle_template(recipe.chat_template_jinja);
  for (auto* datasets : {&recipe.datasets, &recipe.test_datasets}) {
    for (DatasetConfig& dataset : *datasets) {
      dataset.path = absolute_path(dataset.path);
      settle_template(dataset.chat_template_jinja);
    }
  }
  return recipe;
}

void resolve_paths(Recipe& recipe, Problems& problems) {
  const auto attempt = [&](const std::string& key, auto&& check) {
    problems.attempt(key, recipe.place_of({key}), check);
  };
  std::vector<std::function<void()>> fetches;
  const auto attempt_folder = [&](const char* key, std::string& path) {
    attempt(key, [&] {
      if (resolve_folder(recipe, key, path)) return;
      if (!hub::is_fetchable(path)) return fetch_folder(recipe, key, path);
      fetches.emplace_back([&, key] { attempt(key, [&] { fetch_folder(recipe, key, path); }); });
    });
  };
  attempt_folder("base_model", recipe.base_model);
  attempt_folder("tokenizer_config", recipe.tokenizer_config);
  attempt_folder("lora_model_dir", recipe.lora_model_dir);
  resolve_template(recipe, recipe.chat_template_jinja);
  if (!recipe.resume_from_checkpoint.empty())
    recipe.resume_from_checkpoint = resolve_path(recipe.resume_from_checkpoint, recipe.source_folder);
  if (!recipe.eval_tasks_data.empty())
    recipe.eval_tasks_data = resolve_path(recipe.eval_tasks_data, recipe.source_folder);
  for (std::string& task : recipe.eval_tasks) {
    if (is_task_file(task)) task = resolve_path(task, recipe.source_folder);
  }
  const auto attempt_datasets = [&](const std::string& list, std::vector<DatasetConfig>& datasets) {
    for (size_t i = 0; i < datasets.size(); ++i) {
      const std::string key = list + '.' + std::to_string(i) + '.';
      DatasetConfig& dataset = datasets[i];
      if (dataset.path.empty()) continue;
      attempt(key + "path", [&] {
        if (resolve_dataset(recipe, dataset, key)) return;
        if (!is_dataset_name(dataset.path)) return fetch_entry(recipe, dataset, key);
        fetches.emplace_back([&, key] { attempt(key + "path", [&] { fetch_entry(recipe, dataset, key); }); });
      });
    }
  };
  attempt_datasets("datasets", recipe.datasets);
  attempt_datasets("test_datasets", recipe.test_datasets);
  // A recipe that is refused anyway fetches nothing more. Without a network there is nothing to wait for, and
  // all that is wrong is told at once.
  for (const auto& fetch : fetches) {
    if (!problems.empty() && !hub::is_offline()) return;
    fetch();
  }
}

}  // namespace tessera::config
