#include "tessera/config/hub_datasets.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "tessera/config/dataset_card.h"
#include "tessera/config/entry_error.h"
#include "tessera/core/strings.h"
#include "tessera/hub/fetch.h"
#include "tessera/io/file_pattern.h"

namespace tessera::config {
namespace {

constexpr const char* kCard = "README.md";

bool is_data_file(const std::string& name) {
  std::filesystem::path path(name);
  const std::string packed = path.extension().string();
  if (packed == ".gz" || packed == ".zst" || packed == ".zstd") path.replace_extension();
  static const std::set<std::string> kEndings = {".json", ".jsonl",   ".ndjson", ".csv",    ".tsv",
                                                 ".txt",  ".parquet", ".arrow",  ".feather"};
  return kEndings.contains(path.extension().string());
}

bool is_hidden(const std::string& name) {
  return name.starts_with('.') || name.find("/.") != std::string::npos;
}

Error no_file_error(const DatasetConfig& dataset, const std::string& what) {
  return entry_error(dataset, "HUB-FILES", "the dataset " + dataset.path + ' ' + what);
}

bool is_plain(const std::string& pattern) { return pattern.find_first_of("*?[\\") == std::string::npos; }

hub::Choice match(const DatasetConfig& dataset, const hub::Names& names,
                  const std::vector<std::string>& patterns, const std::string& source) {
  io::MatchedFiles matched = io::match_files({names.begin(), names.end()}, patterns);
  if (!matched.unmatched.empty())
    throw no_file_error(dataset, "has no file that matches " + source).got("'" + matched.unmatched + "'");
  return {std::move(matched.names), std::all_of(patterns.begin(), patterns.end(), is_plain)};
}

std::vector<std::string> patterns_of(const std::vector<CardFiles>& listed) {
  std::vector<std::string> patterns;
  for (const CardFiles& files : listed)
    patterns.insert(patterns.end(), files.patterns.begin(), files.patterns.end());
  return patterns;
}

// Takes the data files of a dataset that says nothing about them.
hub::Choice take_all(const DatasetConfig& dataset, const hub::Names& names) {
  const bool is_saved = names.contains("dataset_dict.json") || names.contains("state.json");
  const std::string folder = dataset.name.empty() || is_saved ? "" : dataset.name + '/';
  hub::Choice chosen{{}, false};
  for (const std::string& name : names) {
    if (name.starts_with(folder) && !is_hidden(name) && is_data_file(name)) chosen.files.push_back(name);
  }
  if (!chosen.files.empty()) return chosen;
  Error error =
      no_file_error(dataset, folder.empty() ? "has no data files" : "has no data files in " + folder);
  error.got(
      join({names.begin(), std::next(names.begin(), std::min<std::ptrdiff_t>(6, std::ssize(names)))}, ", "));
  const bool is_script =
      std::any_of(names.begin(), names.end(), [](const std::string& name) { return name.ends_with(".py"); });
  throw is_script ? error.hint(
                        "Tessera does not run the dataset's script; the hub may have converted its data to "
                        "files: revision: refs/convert/parquet")
                  : error;
}

hub::Choice choose(const DatasetConfig& dataset, const hub::Names& names, const hub::ReadFile& read) {
  if (!dataset.data_files.empty()) return match(dataset, names, dataset.data_files, "data_files");
  if (names.contains(kCard)) {
    if (const auto listed = files_of_card(dataset, read(kCard), dataset.path + ": " + kCard))
      return match(dataset, names, patterns_of(*listed), kCard);
  }
  return take_all(dataset, names);
}

}  // namespace

bool is_dataset_name(const std::string& path) {
  return path.find('/') != std::string::npos && hub::is_hub_id(path) && !is_data_file(path);
}

hub::ChooseFiles choose_dataset(const DatasetConfig& dataset) {
  return [&dataset](const hub::Names& names, const hub::ReadFile& read) {
    hub::Choice choice = choose(dataset, names, read);
    auto& files = choice.files;
    if (names.contains(kCard) && std::find(files.begin(), files.end(), kCard) == files.end())
      files.emplace_back(kCard);
    return choice;
  };
}

std::string fetch_dataset(const DatasetConfig& dataset) {
  return hub::fetch({hub::Kind::Dataset, dataset.path, dataset.revision}, choose_dataset(dataset));
}

}  // namespace tessera::config
