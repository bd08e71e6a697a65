#include "tessera/data/readers/dataset_files.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include <glob.h>
#include <nlohmann/json.hpp>

#include "tessera/config/resolve_paths.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/data/readers/dataset_card.h"
#include "tessera/io/file.h"
#include "tessera/io/file_pattern.h"
#include "tessera/io/json_file.h"
#include "tessera/io/json_values.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKnown =
    "json, jsonl, csv, tsv, txt (each also .gz or .zst), parquet or arrow (or set ds_type)";

std::optional<FileFormat> format_of(const fs::path& path, const std::string& ds_type) {
  std::string extension = path.extension().string();
  if (extension == ".gz" || extension == ".zst" || extension == ".zstd")
    extension = path.stem().extension().string();
  if (ds_type == "text") return FileFormat::Text;
  if (extension == ".jsonl" || extension == ".ndjson") return FileFormat::JsonLines;
  if (extension == ".json" || ds_type == "json") return FileFormat::Json;
  if (extension == ".tsv") return FileFormat::Tsv;
  if (extension == ".csv" || ds_type == "csv") return FileFormat::Csv;
  if (extension == ".parquet" || extension == ".arrow" || extension == ".feather" || ds_type == "parquet" ||
      ds_type == "arrow")
    return FileFormat::Table;
  if (extension == ".txt") return FileFormat::Text;
  return std::nullopt;
}

enum class Hidden { LeftOut, Listed };

// Returns all plain files below `folder`, ordered by the bytes of their names.
std::vector<fs::path> walk(const fs::path& folder, Hidden hidden = Hidden::LeftOut) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, error), end;
  for (; !error && it != end; it.increment(error)) {
    if (hidden == Hidden::LeftOut && it->path().filename().string().starts_with(".")) {
      if (it->is_directory()) it.disable_recursion_pending();
    } else if (it->is_regular_file()) {
      files.push_back(it->path());
    }
  }
  if (error) {
    throw Error(ErrorKind::Storage, "READ-FOLDER", "cannot list the folder: " + error.message())
        .in(folder.string());
  }
  std::ranges::sort(files, {}, &fs::path::native);
  return files;
}

class FileSearch {
 public:
  FileSearch(const config::DatasetConfig& dataset, const std::string& source_folder, bool tells)
      : dataset_(dataset), source_folder_(source_folder), split_(parse_split(dataset).name), tells_(tells) {}

  std::vector<DatasetFile> run() {
    const fs::path root = config::resolve_path(dataset_.path, source_folder_);
    std::error_code ignored;
    if (fs::is_directory(root, ignored)) {
      search_folder(root);
    } else if (io::exists(root)) {
      require_train(root, split_of_file(root.filename()));
      add(root, "datasets");
    } else {
      search_pattern();
    }
    for (const DatasetFile& file : files_) {
      if (file.format == FileFormat::Table) require_table_library(file.path);
    }
    return std::move(files_);
  }

 private:
  Error error(std::string_view name, const std::string& what) const {
    return entry_error(dataset_, name, what);
  }

  void add(const fs::path& path, const std::string& key) {
    const auto format = format_of(path, dataset_.ds_type);
    if (!format)
      throw error("FILE-FORMAT", key + ": '" + path.string() + "' is of an unknown format").need(kKnown);
    files_.push_back({path.string(), *format});
  }

  // Data that form one split by themselves are `train`, whatever else they may be called: refuses any split
  // but this and `own`.
  void require_train(const fs::path& place, const std::string& own) const {
    if (split_ != "train" && split_ != own) throw no_split_error(dataset_, "'" + place.string() + "'", {});
  }

  void search_pattern() {
    for (const fs::path& pattern : {fs::path(dataset_.path), fs::path(source_folder_) / dataset_.path}) {
      glob_t found = {};
      std::vector<std::string> paths;
      if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
        paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
      ::globfree(&found);
      for (const std::string& path : paths) {
        if (fs::is_directory(path)) {
          for (const fs::path& file : walk(path)) add_known(file);
        } else {
          add(path, "datasets");
        }
      }
      if (!files_.empty()) {
        require_train(pattern, "");
        return;
      }
    }
    throw error("NO-FILE", "datasets: path '" + dataset_.path + "' does not exist")
        .need(std::string("a file of ") + kKnown + ", or a folder of them")
        .hint(fs::path(dataset_.path).is_relative() && !source_folder_.empty()
                  ? "looked in the current folder and in " + source_folder_
                  : "");
  }

  void add_known(const fs::path& file) {
    if (format_of(file, dataset_.ds_type)) add(file, "datasets");
  }

  void search_folder(fs::path root) {
    if (io::exists(root / "dataset_dict.json")) {
      const std::string whole = root.string();
      root /= split_;
      if (!io::exists(root)) throw no_split_error(dataset_, "'" + whole + "'", saved_splits(whole));
      return search_saved(root);
    }
    if (io::exists(root / "state.json") && io::exists(root / "dataset_info.json")) {
      require_train(root, saved_split(root));
      return search_saved(root);
    }
    if (!dataset_.data_files.empty()) return match(root, dataset_.data_files, "data_files");
    if (const auto patterns = files_of_card(dataset_, root.string()))
      return match(root, *patterns, "README.md");
    if (!dataset_.name.empty()) {
      root /= dataset_.name;
      if (!io::exists(root)) {
        throw error("DATASET-NAME", "datasets: the folder has no configuration of this name")
            .got("name: " + dataset_.name)
            .need("a folder '" + root.string() + "', or a README.md that lists it");
      }
    }
    take_split(root);
  }

  std::vector<std::string> saved_splits(const std::string& folder) const {
    std::vector<std::string> names;
    const auto dictionary = io::read_json_file(folder + "/dataset_dict.json", ErrorKind::Data);
    const auto list = dictionary.find("splits");
    if (list == dictionary.end() || !list->is_array()) return names;
    for (const auto& name : *list)
      if (name.is_string()) names.push_back(name);
    return names;
  }

  std::string saved_split(const fs::path& folder) const {
    return io::text_at(io::read_json_file((folder / "state.json").string(), ErrorKind::Data), "_split");
  }

  void search_saved(const fs::path& folder) {
    const std::string path = (folder / "state.json").string();
    const auto state = io::read_json_file(path, ErrorKind::Data);
    const auto list = state.find("_data_files");
    if (list == state.end() || !list->is_array() || list->empty())
      throw Error(ErrorKind::Data, "SAVED-DATASET", "the list '_data_files' is missing or empty").in(path);
    for (const auto& item : *list) {
      const std::string name = io::text_at(item, "filename");
      // A name may not lead out of the folder.
      if (name.empty() || name.find('/') != std::string::npos || !io::exists(folder / name))
        throw Error(ErrorKind::Data, "SAVED-DATASET", "a file of the dataset is missing")
            .in(path)
            .got("'" + name + "'");
      files_.push_back({(folder / name).string(), FileFormat::Table});
    }
  }

  void match(const fs::path& root, const std::vector<std::string>& patterns, const std::string& key) {
    std::vector<std::string> names;
    // A pattern without a hidden part takes no hidden file, and hidden folders may be other programs' own.
    const bool asks_for_hidden = std::ranges::any_of(patterns, [](const std::string& pattern) {
      return pattern.starts_with('.') || pattern.find("/.") != std::string::npos;
    });
    for (const fs::path& path : walk(root, asks_for_hidden ? Hidden::Listed : Hidden::LeftOut))
      names.push_back(path.lexically_relative(root).string());
    const io::MatchedFiles matched = io::match_files(std::move(names), patterns);
    if (!matched.unmatched.empty())
      throw error("NO-FILE", key + ": '" + matched.unmatched + "' matches no file below " + root.string());
    for (const std::string& name : matched.names) add(root / name, key);
  }

  void take_split(const fs::path& root) {
    std::vector<fs::path> all = walk(root), chosen;
    std::erase_if(all, [&](const fs::path& path) { return !format_of(path, dataset_.ds_type); });
    if (all.empty())
      throw error("NO-FILE", "datasets: folder '" + root.string() + "' holds no dataset file").need(kKnown);
    std::set<std::string> splits;
    for (const fs::path& path : all) {
      const std::string split = split_of_file(path.lexically_relative(root).string());
      if (!split.empty()) splits.insert(split);
      if (split == split_) chosen.push_back(path);
    }
    if (splits.empty()) {
      require_train(root, "");
      chosen = all;
    } else if (chosen.empty()) {
      throw no_split_error(dataset_, "'" + root.string() + "'", {splits.begin(), splits.end()});
    } else if (tells_ && chosen.size() < all.size()) {
      log::info(root.string() + ": " + std::to_string(chosen.size()) + " of " + std::to_string(all.size()) +
                " files are of split " + split_ + "; data_files chooses others");
    }
    for (const fs::path& path : chosen) add(path, "datasets");
  }

  const config::DatasetConfig& dataset_;
  const std::string& source_folder_;
  std::string split_;
  bool tells_;
  std::vector<DatasetFile> files_;
};

}  // namespace

std::vector<DatasetFile> find_dataset_files(const config::DatasetConfig& dataset,
                                            const std::string& source_folder) {
  return FileSearch(dataset, source_folder, true).run();
}

std::string split_to_evaluate(const config::DatasetConfig& dataset, const std::string& source_folder) {
  if (!dataset.split.empty()) return dataset.split;
  config::DatasetConfig entry = dataset;
  for (const char* const split : {"test", "validation"}) {
    entry.split = split;
    try {
      FileSearch(entry, source_folder, false).run();
      return split;
    } catch (const Error& error) {
      if (error.code() != "E-CONFIG-SPLIT") throw;
    }
  }
  return "";
}

}  // namespace tessera::data
