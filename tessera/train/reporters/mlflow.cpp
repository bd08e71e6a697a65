#include "tessera/train/reporters/mlflow.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include <nlohmann/json.hpp>

#include "tessera/config/load_recipe.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/unix_time.h"
#include "tessera/io/file.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxFileBytes = int64_t{1} << 30;
constexpr const char* kOutputTag = "tessera.output_dir";
constexpr const char* kTable = "eval_samples.json";

// A string of JSON is one of YAML, too.
std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

// Returns a text of YAML without its quotes.
std::string plain(const std::string& text) {
  if (text.size() < 2 || text.front() != text.back()) return text;
  if (text.front() == '"' && nlohmann::json::accept(text))
    return nlohmann::json::parse(text).get<std::string>();
  if (text.front() != '\'') return text;
  std::string out;
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    out += text[i];
    if (text[i] == '\'' && text[i + 1] == '\'') ++i;
  }
  return out;
}

// Returns the value of a key in a meta.yaml; "" where it is not there.
std::string meta_value(const std::string& file, const std::string& key) {
  if (!io::exists(file)) return "";
  std::istringstream lines(io::read_file(file, kMaxFileBytes));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key + ": ")) return plain(line.substr(key.size() + 2));
  }
  return "";
}

std::string random_digits(size_t count, const char* digits, uint32_t base) {
  std::random_device random;
  std::string text;
  for (size_t i = 0; i < count; ++i) text += digits[random() % base];
  return text;
}

}  // namespace

std::string mlflow_store(const config::TrackerConfig& keys) {
  std::string place = keys.mlflow_tracking_uri.empty() ? "mlruns" : keys.mlflow_tracking_uri;
  if (place.starts_with("file://")) {
    place.erase(0, std::string("file://").size());
  } else if (place.starts_with("file:")) {
    place.erase(0, std::string("file:").size());
  }
  return fs::absolute(place).lexically_normal().string();
}

namespace {

std::vector<std::string> folders_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
    if (entry->path().filename().string().front() != '.') names.push_back(entry->path().filename());
  }
  std::ranges::sort(names);
  return names;
}

// Returns the id of the experiment of this name, which is made where there is none.
std::string experiment_in(const std::string& store, const std::string& name) {
  for (const std::string& id : folders_in(store)) {
    if (meta_value(io::join_path(store, id + "/meta.yaml"), "name") == name) return id;
  }
  const std::string id = name == "Default" ? "0" : "1" + random_digits(17, "0123456789", 10);
  const std::string folder = io::join_path(store, id);
  const std::string now = std::to_string(unix_time_ms());
  io::make_directories(folder);
  io::write_file_atomic(io::join_path(folder, "meta.yaml"),
                        "artifact_location: " + quoted("file://" + folder) + "\ncreation_time: " + now +
                            "\nexperiment_id: '" + id + "'\nlast_update_time: " + now +
                            "\nlifecycle_stage: active\nname: " + quoted(name) + "\n");
  return id;
}

// Writes a file of one line. There are hundreds of them, so none waits for the disk.
void write_value(const std::string& folder, const std::string& name, std::string value) {
  std::ranges::replace(value, '\n', ' ');
  const std::string path = io::join_path(folder, name);
  std::ofstream file(path, std::ios::binary);
  file << value;
  if (!file.flush()) throw io::storage_error(errno, "cannot write", path);
}

// Returns the name of the file for a metric. Names may hold letters, digits and "_-. /". The file for
// "train/loss/chats" lies in another folder than train/loss, which is a file itself, and that for
// "eval/arc_easy/acc" likewise in another than eval/acc.
std::string metric_name(std::string name) {
  for (char& c : name) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                          std::string_view("_-. /").find(c) != std::string_view::npos;
    if (!is_plain) c = '_';
  }
  const ScalarName names = split_name(name);
  if (!names.label) return name;
  std::string owner = names.label->value;
  std::ranges::replace(owner, '/', '_');
  if (owner.find_first_not_of('.') == std::string::npos) owner = "_" + owner;
  return names.metric + "_of/" + owner;
}

}  // namespace

bool wants_mlflow(const config::TrackerConfig& keys) {
  return keys.use_mlflow.value_or(!keys.mlflow_experiment_name.empty() || !keys.mlflow_tracking_uri.empty());
}

MlflowRun::MlflowRun(const config::Recipe& recipe, int64_t resumed_step, std::function<bool()> is_done)
    : name_(recipe.mlflow_run_name),
      start_ms_(unix_time_ms()),
      resumed_step_(resumed_step),
      is_done_(std::move(is_done)) {
  const std::string store = mlflow_store(recipe);
  const std::string name = recipe.mlflow_experiment_name.empty() ? "Default" : recipe.mlflow_experiment_name;
  experiment_ = experiment_in(store, name);
  const std::string runs = io::join_path(store, experiment_);
  const std::string output = fs::absolute(recipe.output_dir).lexically_normal().string();
  if (name_.empty()) name_ = fs::path(output).filename().string();
  int64_t newest = -1;
  for (const std::string& id : resumed_step > 0 ? folders_in(runs) : std::vector<std::string>()) {
    const std::string folder = io::join_path(runs, id),
                      tag = io::join_path(folder, std::string("tags/") + kOutputTag);
    const std::string began = meta_value(io::join_path(folder, "meta.yaml"), "start_time");
    if (!io::exists(tag) || io::read_file(tag, kMaxFileBytes) != output || began.empty()) continue;
    if (const int64_t start = std::atoll(began.c_str()); start > newest) {
      newest = start_ms_ = start;
      id_ = id;
    }
  }
  if (id_.empty()) id_ = random_digits(32, "0123456789abcdef", 16);
  folder_ = io::join_path(runs, id_);
  for (const char* part : {"artifacts", "metrics", "params", "tags"})
    io::make_directories(io::join_path(folder_, part));
  write_meta(Status::Running);
  const std::string params = io::join_path(folder_, "params"), tags = io::join_path(folder_, "tags");
  for (const auto& [key, value] : config::top_level_values(config::dump_recipe(recipe)))
    write_value(params, key, plain(value));
  write_value(tags, "mlflow.runName", name_);
  write_value(tags, "mlflow.source.name", "tessera train");
  write_value(tags, "mlflow.source.type", "LOCAL");
  write_value(tags, kOutputTag, output);
}

MlflowRun::~MlflowRun() {
  try {
    if (std::uncaught_exceptions() > 0) {
      write_meta(Status::Failed);
    } else if (has_step_ && is_done_()) {
      write_meta(Status::Finished);
    }
  } catch (const std::exception& error) {
    warn(error.what());
  }
}

void MlflowRun::write_meta(Status status) const {
  const std::string end = status == Status::Running ? "null" : std::to_string(unix_time_ms());
  io::write_file_atomic(
      io::join_path(folder_, "meta.yaml"),
      "artifact_uri: " + quoted("file://" + io::join_path(folder_, "artifacts")) + "\nend_time: " + end +
          "\nentry_point_name: ''\nexperiment_id: '" + experiment_ + "'\nlifecycle_stage: active\nrun_id: " +
          quoted(id_) + "\nrun_name: " + quoted(name_) + "\nrun_uuid: " + quoted(id_) +
          "\nsource_name: ''\nsource_type: 4\nsource_version: ''\nstart_time: " + std::to_string(start_ms_) +
          "\nstatus: " + std::to_string(static_cast<int>(status)) + "\ntags: []\nuser_id: ''\n");
}

void MlflowRun::warn(const std::string& why) {
  if (has_warned_) return;
  has_warned_ = true;
  log::warn("the run can no longer be written for MLflow: " + why + "; training continues");
}

void MlflowRun::add(const std::string& name, double value, int64_t step, int64_t now) {
  std::unique_ptr<io::LogFile>& file = files_[name];
  const std::string path = io::join_path(folder_, "metrics/" + metric_name(name));
  if (file == nullptr) {
    // A run that goes on tells once more of the steps behind resumed_step_, so their lines are dropped.
    std::string kept;
    if (io::exists(path)) {
      std::istringstream lines(io::read_file(path, kMaxFileBytes));
      for (std::string line; std::getline(lines, line);) {
        const size_t last = line.rfind(' ');
        if (last != std::string::npos && std::atoll(line.c_str() + last) <= resumed_step_)
          kept += line + "\n";
      }
    }
    io::make_directories(io::parent_path(path));
    file = std::make_unique<io::LogFile>(path);
    if (!kept.empty() && !file->append(kept)) warn(path + " (disk full?)");
  }
  char text[96];
  std::snprintf(text, sizeof text, "%lld %.17g %lld\n", static_cast<long long>(now), value,
                static_cast<long long>(step));
  if (!file->append(text)) warn(path + " (disk full?)");
}

void MlflowRun::add_all(const Scalars& scalars, int64_t step) {
  const int64_t now = unix_time_ms();
  try {
    for (const auto& [name, value] : scalars) add(name, value, step, now);
  } catch (const std::exception& error) {
    warn(error.what());
  }
}

// The table is one file, which is replaced: MLflow shows files whose names the tag has.
void MlflowRun::add_samples(int64_t step, const std::vector<Sample>& samples) {
  if (samples.empty()) return;
  const std::string path = io::join_path(folder_, std::string("artifacts/") + kTable);
  try {
    if (!samples_) {
      samples_ = SampleRows::array();
      // A run that goes on tells once more of the steps behind resumed_step_.
      if (io::exists(path)) {
        const auto before = SampleRows::parse(io::read_file(path, kMaxFileBytes));
        for (const auto& row : before.at("data"))
          if (row.at(0).get<int64_t>() <= resumed_step_) samples_->push_back(row);
      }
      write_value(io::join_path(folder_, "tags"), "mlflow.loggedArtifacts",
                  SampleRows::array({SampleRows{{"path", kTable}, {"type", "table"}}}).dump());
    }
    for (auto& row : sample_rows(step, samples)) samples_->push_back(std::move(row));
    io::write_file_atomic(path, table_text(*samples_));
  } catch (const std::exception& error) {
    warn(error.what());
  }
}

void MlflowRun::on_step(const TrainState&, StepMetrics&) { has_step_ = true; }

void MlflowRun::on_line(const StepMetrics& line) { add_all(scalars_of(line), line.step); }

void MlflowRun::on_evaluation(int64_t step, const Evaluated& evaluated) {
  add_all(scalars_of_evaluation(evaluated), step);
  add_samples(step, evaluated.samples);
}

}  // namespace tessera::train
