#include "tessera/data/readers/dataset_files.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include <fnmatch.h>

#include "tessera/config/resolve_paths.h"
#include "tessera/core/error.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

Error entry_error(const config::DatasetConfig& dataset, std::string_view name, const std::string& what) {
  Error error(ErrorKind::Config, name, what);
  if (!dataset.source_file.empty()) error.at(dataset.source_file, dataset.source_line);
  return error;
}

std::optional<FileFormat> format_of(const fs::path& path, const std::string& ds_type) {
  const std::string extension = path.extension().string();
  if (ds_type == "text") return FileFormat::Text;
  if (extension == ".jsonl" || extension == ".ndjson") return FileFormat::JsonLines;
  if (extension == ".json" || ds_type == "json") return FileFormat::Json;
  if (extension == ".txt") return FileFormat::Text;
  return std::nullopt;
}

fs::path locate(const config::DatasetConfig& dataset, const std::string& source_folder) {
  fs::path path = config::resolve_path(dataset.path, source_folder);
  std::error_code ignored;
  if (fs::exists(path, ignored)) return path;
  throw entry_error(dataset, "NO-FILE", "datasets: path '" + dataset.path + "' does not exist")
      .need("a .json, .jsonl or .txt file, or a folder of them")
      .hint(path.is_relative() && !source_folder.empty()
                ? "looked in the current folder and in " + source_folder
                : "");
}

// All plain files below `folder`, by name; hidden ones are left out.
std::vector<fs::path> walk(const config::DatasetConfig& dataset, const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, error), end;
  for (; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().starts_with(".")) {
      if (it->is_directory()) it.disable_recursion_pending();
    } else if (it->is_regular_file()) {
      files.push_back(it->path());
    }
  }
  if (error) {
    throw Error(ErrorKind::Storage, "READ-FOLDER", "cannot list the folder: " + error.message())
        .in(folder.string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::optional<SplitSlice::Bound> parse_bound(std::string_view text, bool& good) {
  if (text.empty()) return std::nullopt;
  SplitSlice::Bound bound;
  if (text.back() == '%') {
    bound.percent = true;
    text.remove_suffix(1);
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bound.value);
  good = good && error == std::errc() && end == text.data() + text.size() &&
         (!bound.percent || (bound.value >= -100 && bound.value <= 100));
  return bound;
}

int64_t resolve_bound(const std::optional<SplitSlice::Bound>& bound, int64_t missing, int64_t num_records) {
  if (!bound) return missing;
  int64_t at = bound->value;
  if (bound->percent) {
    at = static_cast<int64_t>(
        std::nearbyint(static_cast<double>(at) * static_cast<double>(num_records) / 100.0));
  }
  if (at < 0) at += num_records;
  return std::clamp<int64_t>(at, 0, num_records);
}

}  // namespace

std::vector<DatasetFile> find_dataset_files(const config::DatasetConfig& dataset,
                                            const std::string& source_folder) {
  const fs::path root = locate(dataset, source_folder);
  const std::string known = "json, jsonl or txt (or set ds_type: json or text)";
  std::vector<DatasetFile> files;
  if (!fs::is_directory(root)) {
    const auto format = format_of(root, dataset.ds_type);
    if (!format) {
      throw entry_error(dataset, "FILE-FORMAT", "datasets: '" + root.string() + "' is of an unknown format")
          .need(known);
    }
    files.push_back({root.string(), *format});
    return files;
  }
  const std::vector<fs::path> all = walk(dataset, root);
  if (dataset.data_files.empty()) {
    for (const fs::path& path : all) {
      if (const auto format = format_of(path, dataset.ds_type)) files.push_back({path.string(), *format});
    }
  }
  for (const std::string& pattern : dataset.data_files) {
    const size_t before = files.size();
    for (const fs::path& path : all) {
      if (::fnmatch(pattern.c_str(), path.lexically_relative(root).c_str(), FNM_PATHNAME) != 0) continue;
      const auto format = format_of(path, dataset.ds_type);
      if (!format) {
        throw entry_error(dataset, "FILE-FORMAT",
                          "data_files: '" + path.string() + "' is of an unknown format")
            .need(known);
      }
      files.push_back({path.string(), *format});
    }
    if (files.size() == before) {
      throw entry_error(dataset, "NO-FILE",
                        "data_files: '" + pattern + "' matches no file below " + root.string());
    }
  }
  if (files.empty()) {
    const auto table = std::find_if(all.begin(), all.end(), [](const fs::path& path) {
      return !config::table_format(path.string()).empty();
    });
    if (table != all.end()) {
      throw entry_error(dataset, "UNSUPPORTED",
                        "datasets: folder '" + root.string() +
                            "' holds csv, parquet or arrow files, which are not built yet")
          .need(known)
          .hint(config::conversion_hint(table->string()));
    }
    throw entry_error(dataset, "NO-FILE", "datasets: folder '" + root.string() + "' holds no dataset file")
        .need(known);
  }
  return files;
}

bool SplitSlice::needs_count() const {
  const auto counted = [](const std::optional<Bound>& bound) {
    return bound && (bound->percent || bound->value < 0);
  };
  return counted(begin) || counted(end);
}

SplitSlice parse_split(const config::DatasetConfig& dataset) {
  const std::string& split = dataset.split;
  SplitSlice slice;
  const size_t bracket = split.find('[');
  const std::string name = split.substr(0, bracket);
  bool good = name.empty() ? split.empty() : name == "train";
  if (bracket != std::string::npos) {
    const size_t colon = split.find(':', bracket);
    good = good && colon != std::string::npos && split.back() == ']';
    if (good) {
      slice.begin = parse_bound(std::string_view(split).substr(bracket + 1, colon - bracket - 1), good);
      slice.end = parse_bound(std::string_view(split).substr(colon + 1, split.size() - colon - 2), good);
    }
  }
  if (!good) {
    throw entry_error(dataset, "SPLIT", "datasets: split cannot be read")
        .got("'" + split + "'")
        .need("train, train[100:200] or train[:10%]")
        .hint("files on disk form one split, train; choose files with data_files");
  }
  return slice;
}

RecordRange resolve_range(const SplitSlice& slice, int64_t shards, int64_t shards_idx, int64_t num_records) {
  const int64_t begin = resolve_bound(slice.begin, 0, num_records);
  const int64_t end = std::max(begin, resolve_bound(slice.end, num_records, num_records));
  if (shards <= 1) return {begin, end};
  const int64_t share = (end - begin) / shards, rest = (end - begin) % shards;
  const int64_t first = begin + share * shards_idx + std::min(shards_idx, rest);
  return {first, first + share + (shards_idx < rest ? 1 : 0)};
}

}  // namespace tessera::data
