#include "tessera/report/run_watch.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include <nlohmann/json.hpp>

#include "tessera/config/load_recipe.h"
#include "tessera/core/error.h"
#include "tessera/core/host_name.h"
#include "tessera/io/file.h"
#include "tessera/io/json_values.h"
#include "tessera/report/run_folders.h"

namespace tessera::report {
namespace {

namespace fs = std::filesystem;

// So many bytes at the end of the metrics tell how fast a run is.
constexpr int64_t kTail = int64_t{64} << 10;
// A run that lets so many times the time of a line pass, and at least so many seconds, does not go on.
constexpr double kQuietLines = 10, kQuietS = 600;

// Holds what is known from the last lines of the metrics of a run.
struct Tail {
  int64_t step = 0;
  double epoch = 0, step_s = 0, line_s = 0;  // seconds of a step, and of the steps of a line
};

Tail read_tail(const io::File& file) {
  Tail tail;
  const int64_t begin = std::max<int64_t>(0, file.size() - kTail);
  std::string text(static_cast<size_t>(file.size() - begin), '\0');
  file.read_at(begin, text.data(), static_cast<int64_t>(text.size()));
  double seconds = 0, steps = 0;
  for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const auto line = nlohmann::json::parse(text.begin() + static_cast<ptrdiff_t>(at),
                                            text.begin() + static_cast<ptrdiff_t>(end), nullptr, false);
    const auto step = line.is_object() && line.contains("step") ? io::integer_of(line["step"]) : std::nullopt;
    if (!step) continue;
    const auto number = [&](const char* name) {
      const auto found = line.find(name);
      return found != line.end() && found->is_number() ? found->get<double>() : 0.0;
    };
    const double step_s = number("step_s");
    if (step_s > 0) {
      // The first line here may stand for any number of steps.
      const auto count = static_cast<double>(tail.step > 0 ? std::max<int64_t>(*step - tail.step, 1) : 1);
      tail.line_s = step_s * count;
      seconds += tail.line_s;
      steps += count;
      tail.epoch = number("epoch");
    }
    tail.step = std::max(tail.step, *step);
  }
  if (steps > 0) tail.step_s = seconds / steps;
  return tail;
}

// Returns the last step of a run with this recipe.
std::optional<int64_t> last_step(const std::string& recipe, const Tail& tail) {
  const auto pairs = config::top_level_values(recipe);
  const std::map<std::string, std::string> values(pairs.begin(), pairs.end());
  const auto number = [&](const char* name) {
    const auto found = values.find(name);
    return found == values.end() ? 0.0 : std::strtod(found->second.c_str(), nullptr);
  };
  constexpr double kMost = 1e15;
  if (const double steps = number("max_steps"); steps >= 1 && steps < kMost)
    return static_cast<int64_t>(steps);
  const double epochs = number("num_epochs");
  if (tail.epoch <= 0 || epochs <= 0) return std::nullopt;
  const double steps = std::round(static_cast<double>(tail.step) * epochs / tail.epoch);
  return steps < kMost ? std::optional(std::max(tail.step, static_cast<int64_t>(steps))) : std::nullopt;
}

std::string folder_of(const std::string& output) {
  return has_metrics(output + kUnfinished) ? output + kUnfinished : output;
}

// Returns whether the process that made this lock (io/result_folder.cpp) was of this machine and lives no
// more.
bool is_left_behind(const std::string& lock) {
  try {
    const std::string owner = io::read_file(lock, kMaxRecipe);
    long process = 0;
    int end = 0;
    return std::sscanf(owner.c_str(), "process %ld on %n", &process, &end) == 1 && end > 0 && process > 0 &&
           owner.substr(static_cast<size_t>(end)) == host_name() &&
           ::kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH;
  } catch (const Error&) {
    return false;
  }
}

double age_of(const std::string& path, double now) {
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  if (error) throw io::storage_error(error.value(), "read", path);
  const auto at = std::chrono::file_clock::to_sys(written).time_since_epoch();
  return std::max(0.0, now - std::chrono::duration<double>(at).count());
}

}  // namespace

const char* phase_name(RunPhase phase) {
  switch (phase) {
    case RunPhase::Running: return "running";
    case RunPhase::Finished: return "finished";
    case RunPhase::Failed: return "failed";
    case RunPhase::Stale: return "stale";
  }
  return "";
}

RunWatch::RunWatch(std::vector<std::string> folders) : folders_(std::move(folders)) {
  for (const std::string& given : folders_) {
    const fs::path folder = without_end(given);
    std::error_code ignored;
    if (fs::is_directory(folder, ignored) || has_metrics(folder.string() + kUnfinished)) continue;
    throw Error(ErrorKind::Config, "REPORT", "no run")
        .at(given)
        .need("a folder with metrics.jsonl, as training writes it, or a folder of such folders");
  }
  look();
}

void RunWatch::add(const std::string& output) {
  if (known_.insert(output).second) outputs_.push_back(output);
}

void RunWatch::look() {
  for (const std::string& given : folders_) {
    const fs::path folder = without_end(fs::absolute(given).string());
    if (has_metrics(folder) || has_metrics(folder.string() + kUnfinished)) {
      add(output_of(folder.string()));
      continue;
    }
    std::error_code ignored;
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      if (entry.is_symlink(ignored)) continue;
      if (has_metrics(entry.path())) found.push_back(output_of(entry.path()));
    }
    std::sort(found.begin(), found.end());
    for (const std::string& output : found) add(output);
  }
}

std::vector<std::string> RunWatch::names() const { return short_names({outputs_.begin(), outputs_.end()}); }

std::string RunWatch::file(size_t run, const std::string& name) const {
  return io::join_path(folder_of(outputs_.at(run)), name);
}

std::string RunWatch::recipe(size_t run) const {
  const std::string path = file(run, kRecipe);
  if (!io::exists(path)) return "";
  const io::File opened = open_run_file(path);
  std::string text(static_cast<size_t>(std::min(opened.size(), kMaxRecipe)), '\0');
  opened.read_at(0, text.data(), static_cast<int64_t>(text.size()));
  return text;
}

RunStatus RunWatch::status(size_t run, double now) const {
  const std::string& output = outputs_.at(run);
  const std::string metrics = file(run, kMetrics);
  RunStatus status;
  const io::File opened = open_run_file(metrics);
  status.bytes = opened.size();
  status.quiet_s = age_of(metrics, now);
  if (const std::string samples = file(run, kSamples); io::exists(samples))
    status.sample_bytes = open_run_file(samples).size();
  const Tail tail = read_tail(opened);
  status.step = tail.step;
  status.steps = last_step(recipe(run), tail);
  status.has_hung = io::exists(output + ".tessera-hang.json");
  if (folder_of(output) != output) {
    // A run that ends in order removes its lock, whatever becomes of it.
    const std::string lock = output + ".tessera-lock";
    const bool has_ended = !io::exists(lock);
    const bool is_quiet =
        status.quiet_s > std::max(kQuietS, kQuietLines * tail.line_s) || is_left_behind(lock);
    status.phase = has_ended ? RunPhase::Failed : is_quiet ? RunPhase::Stale : RunPhase::Running;
  }
  if (status.phase == RunPhase::Running && status.steps && tail.step_s > 0)
    status.seconds_left = static_cast<double>(std::max<int64_t>(0, *status.steps - tail.step)) * tail.step_s;
  status.checkpoints = checkpoints_of(output, status.step);
  return status;
}

}  // namespace tessera::report
