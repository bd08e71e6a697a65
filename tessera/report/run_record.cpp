#include "tessera/report/run_record.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/io/file.h"
#include "tessera/io/json_file.h"
#include "tessera/io/json_values.h"
#include "tessera/report/run_folders.h"

namespace tessera::report {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxMetrics = int64_t{1} << 30;

void add_numbers(const nlohmann::json& value, const std::string& name, Record& record) {
  if (value.is_null() || (value.is_number() && !std::isfinite(value.get<double>()))) {
    record.missing.insert(name);
  } else if (value.is_number()) {
    record.numbers[name] = value.get<double>();
  } else if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      add_numbers(inner, name.empty() ? key : name + "/" + key, record);
    }
  }
}

Record record_of(const std::string& line, const std::string& file, int64_t number) {
  const auto problem = [&](const std::string& what) {
    return Error(ErrorKind::Data, "METRICS", what).at(file, number);
  };
  const nlohmann::json json = io::parse_json(line, file + ":" + std::to_string(number), ErrorKind::Data);
  const auto step = json.is_object() && json.contains("step") ? io::integer_of(json["step"]) : std::nullopt;
  if (!step) throw problem("not a record of a step").need("an object with \"step\"");
  Record record{*step};
  add_numbers(json, "", record);
  record.numbers.erase("step");
  return record;
}

// Tells the line of an evaluation, with its loss or the scores of tasks, from that of steps.
bool is_evaluation_of(const Record& record) {
  const auto is_of_evaluation = [](const std::string& name) {
    return name == "eval_loss" || name.starts_with("eval/");
  };
  const auto of_number = [&](const auto& number) { return is_of_evaluation(number.first); };
  return std::ranges::any_of(record.numbers, of_number) ||
         std::ranges::any_of(record.missing, is_of_evaluation);
}

RunRecord read_run(const fs::path& folder) {
  RunRecord run;
  const std::string file = folder / kMetrics;
  const std::string text = io::read_file(file, kMaxMetrics);
  int64_t number = 0;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    ++number;
    if (end == begin) continue;
    Record record = record_of(text.substr(begin, end - begin), file, number);
    const bool is_evaluation = is_evaluation_of(record);
    (is_evaluation ? run.evaluations : run.steps).push_back(std::move(record));
  }
  run.samples = read_samples(folder / kSamples);
  if (io::exists(folder / kRecipe)) run.recipe = io::read_file(folder / kRecipe, kMaxRecipe);
  run.checkpoints = checkpoints_of(output_of(folder), run.steps.empty() ? 0 : run.steps.back().step);
  return run;
}

// Gives the folders with metrics that `given` means: itself, its unfinished run, or the folders in it.
std::vector<fs::path> find_folders(const std::string& given) {
  const fs::path path = without_end(given);
  if (has_metrics(path)) return {path};
  if (has_metrics(path.string() + kUnfinished)) return {path.string() + kUnfinished};
  std::error_code error;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (has_metrics(entry.path())) found.push_back(entry.path());
  }
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory) {
    throw io::storage_error(error.value(), "open folder", given);
  }
  std::sort(found.begin(), found.end());
  if (found.empty()) {
    throw Error(ErrorKind::Config, "REPORT", "no run")
        .at(given)
        .need("a folder with metrics.jsonl, as training writes it, or a folder of such folders");
  }
  return found;
}

}  // namespace

Points RunRecord::points(const std::string& number) const {
  Points points;
  for (const auto* records : {&steps, &evaluations}) {
    for (const Record& record : *records) {
      const auto found = record.numbers.find(number);
      if (found != record.numbers.end()) {
        points.emplace_back(static_cast<double>(record.step), found->second);
      }
    }
  }
  return points;
}

size_t RunRecord::num_missing(const std::string& number) const {
  size_t count = 0;
  for (const auto* records : {&steps, &evaluations}) {
    for (const Record& record : *records) count += record.missing.count(number);
  }
  return count;
}

std::vector<RunRecord> read_runs(const std::vector<std::string>& folders) {
  std::vector<fs::path> paths, absolute;
  for (const std::string& folder : folders) {
    for (const fs::path& path : find_folders(folder)) {
      const fs::path whole = fs::absolute(path).lexically_normal();
      if (std::find(absolute.begin(), absolute.end(), whole) != absolute.end()) continue;
      paths.push_back(path);
      absolute.push_back(whole);
    }
  }
  std::vector<std::string> names = short_names(absolute);
  std::vector<RunRecord> runs;
  for (size_t i = 0; i < paths.size(); ++i) {
    runs.push_back(read_run(paths[i]));
    runs.back().is_unfinished = names[i].ends_with(kUnfinished);
    if (runs.back().is_unfinished) names[i].resize(names[i].size() - std::string(kUnfinished).size());
    runs.back().name = names[i];
  }
  return runs;
}

}  // namespace tessera::report
