#include "tessera/scoring/documents.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "tessera/config/data_config.h"
#include "tessera/config/hub_datasets.h"
#include "tessera/config/resolve_paths.h"
#include "tessera/config/scalar.h"
#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/data/readers/dataset_files.h"
#include "tessera/data/readers/parse_record.h"
#include "tessera/io/file.h"
#include "tessera/io/run_inputs.h"

namespace tessera::scoring {
namespace {

namespace fs = std::filesystem;
using data::DatasetFile;

bool is_builder(const std::string& path) {
  return path == "json" || path == "csv" || path == "parquet" || path == "arrow" || path == "text";
}

config::DatasetConfig entry_of(const TaskConfig& task, const std::string& path, const std::string& split) {
  config::DatasetConfig entry;
  entry.path = path;
  entry.split = split;
  entry.source_file = task.place.file;
  entry.source_line = task.place.line;
  return entry;
}

// Returns the files that dataset_kwargs.data_files names for the split.
std::vector<DatasetFile> named_files(const TaskConfig& task, const std::string& split,
                                     const std::string& data_folder) {
  std::vector<std::string> splits;
  for (const auto& [name, paths] : task.data_files) {
    splits.push_back(name.empty() ? "train" : name);
    if (splits.back() != split) continue;
    std::vector<DatasetFile> files;
    for (const std::string& path : paths) {
      const std::string below = data_folder.empty() ? path : io::join_path(data_folder, path);
      auto entry = entry_of(task, io::exists(below) ? below : path, "");
      if (is_builder(task.dataset_path)) entry.ds_type = task.dataset_path;
      const auto found = data::find_dataset_files(entry, io::parent_path(task.place.file));
      files.insert(files.end(), found.begin(), found.end());
    }
    return files;
  }
  throw task_error(task, "TASK-SPLIT", "data_files has no files of split '" + split + "'")
      .need("one of " + join(splits, ", "));
}

// Returns the local folder or file of the task's data.
std::string find_data(const TaskConfig& task, const std::string& data_folder) {
  std::vector<std::string> places;
  const auto is_there = [&](const std::string& path) {
    places.push_back(path);
    return io::exists(path);
  };
  if (!data_folder.empty()) {
    const std::string last = fs::path(task.dataset_path).filename().string();
    for (const std::string& name : {task.dataset_path, last, task.name}) {
      if (const std::string path = io::join_path(data_folder, name); is_there(path)) return path;
    }
  } else {
    const std::string beside = io::parent_path(task.place.file);
    if (const std::string path = config::resolve_path(task.dataset_path, beside); is_there(path)) return path;
    if (config::is_dataset_name(task.dataset_path)) {
      auto entry = entry_of(task, task.dataset_path, "");
      entry.name = task.dataset_name;
      return config::fetch_dataset(entry);
    }
  }
  throw task_error(task, "TASK-DATA", "the data of the task is not found")
      .got("dataset_path: " + task.dataset_path)
      .need(join(places, ", or "))
      .hint(data_folder.empty()
                ? "--data DIR, or eval_tasks_data in a recipe, names the folder that holds the data of tasks"
                : "");
}

// Returns the files in the folder that bear the name of the split, such as dev.jsonl or
// dev-00000-of-00001.parquet.
std::vector<std::string> files_by_name(const std::string& folder, const std::string& split) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file(ignored) && (name.starts_with(split + ".") || name.starts_with(split + "-0")))
      names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

std::vector<DatasetFile> find_files(const TaskConfig& task, const std::string& split,
                                    const std::string& data_folder) {
  if (!task.data_files.empty()) return named_files(task, split, data_folder);
  std::string path = find_data(task, data_folder);
  auto entry = entry_of(task, path, split);
  if (!task.dataset_name.empty()) {
    if (const std::string inside = io::join_path(path, task.dataset_name); io::is_folder(inside)) {
      entry.path = inside;
    } else {
      entry.name = task.dataset_name;
    }
  }
  // A configuration that lies in the folder itself needs no folder or card of its own.
  if (entry.name == task.dataset_name && !files_by_name(entry.path, split).empty()) entry.name.clear();
  if (io::is_folder(entry.path)) {
    if (const std::string inside = io::join_path(entry.path, split);
        io::exists(io::join_path(inside, "state.json"))) {
      entry.path = inside;
      entry.split.clear();
      entry.name.clear();
    } else if (auto names = files_by_name(entry.path, split); !names.empty()) {
      entry.data_files = std::move(names);
      entry.split.clear();
    }
  }
  return data::find_dataset_files(entry, "");
}

// The values that pandas reads as missing.
const std::set<std::string, std::less<>> kMissing = {
    "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
    "<NA>", "N/A",      "NA",  "NULL",    "NaN",      "None", "n/a",  "nan",    "null"};

enum class CellType { Integer, Number, Boolean, Text };

CellType type_of(const std::string& cell) {
  if (cell == "True" || cell == "False" || cell == "TRUE" || cell == "FALSE" || cell == "true" ||
      cell == "false")
    return CellType::Boolean;
  const bool is_plain = cell.find('_') == std::string::npos;
  if (is_plain && config::parse_integer(cell).status == config::IntegerStatus::Ok &&
      cell.find_first_of(".eE") == std::string::npos)
    return CellType::Integer;
  return is_plain && config::parse_number(cell) ? CellType::Number : CellType::Text;
}

// Gives a column of a CSV file the type that pandas would give it.
void type_column(std::vector<Json>& rows, size_t begin, const std::string& column) {
  std::optional<CellType> type;
  bool has_missing = false;
  for (size_t i = begin; i < rows.size(); ++i) {
    Json& cell = rows[i][column];
    if (cell.is_string() && kMissing.contains(cell.get<std::string>())) cell = nullptr;
    has_missing = has_missing || cell.is_null();
    if (!cell.is_string()) continue;
    const CellType own = type_of(cell.get<std::string>());
    const auto is_numeric = [](CellType one) { return one == CellType::Integer || one == CellType::Number; };
    if (!type || *type == own) {
      type = own;
    } else {
      type = is_numeric(*type) && is_numeric(own) ? CellType::Number : CellType::Text;
    }
  }
  if (!type || *type == CellType::Text || (*type == CellType::Boolean && has_missing)) return;
  for (size_t i = begin; i < rows.size(); ++i) {
    Json& cell = rows[i][column];
    if (!cell.is_string()) continue;
    const std::string text = cell.get<std::string>();
    if (*type == CellType::Boolean) {
      cell = text[0] == 't' || text[0] == 'T';
    } else if (*type == CellType::Integer && !has_missing) {
      cell = config::parse_integer(text).value;
    } else {
      cell = *config::parse_number(text);
    }
  }
}

void read_file(const DatasetFile& file, Documents& documents) {
  const size_t begin = documents.rows.size();
  const auto reader = data::open_records(file.path, file.format);
  data::RawRecord record;
  while (reader->next(record)) {
    if (file.format == data::FileFormat::Text) {
      documents.rows.push_back({{"text", record.text}});
    } else {
      documents.rows.push_back(data::parse_record(record, file.path));
    }
  }
  if (file.format != data::FileFormat::Csv && file.format != data::FileFormat::Tsv) return;
  if (begin == documents.rows.size()) return;
  std::vector<std::string> columns;
  for (const auto& [column, cell] : documents.rows[begin].items()) columns.push_back(column);
  for (const std::string& column : columns) type_column(documents.rows, begin, column);
}

}  // namespace

Documents read_documents(const TaskConfig& task, const std::string& split, const std::string& data_folder) {
  Documents documents;
  for (const DatasetFile& file : find_files(task, split, data_folder)) read_file(file, documents);
  std::set<std::string> known;
  for (const Json& row : documents.rows) {
    for (const auto& [column, value] : row.items()) {
      if (known.insert(column).second) documents.columns.push_back(column);
    }
  }
  // Equal documents must have their columns in one order to be found equal.
  for (Json& row : documents.rows) {
    Json whole = Json::object();
    for (const std::string& column : documents.columns)
      whole[column] = row.contains(column) ? std::move(row[column]) : Json();
    row = std::move(whole);
  }
  if (documents.rows.empty()) throw task_error(task, "TASK-DATA", "split '" + split + "' has no documents");
  return documents;
}

}  // namespace tessera::scoring
