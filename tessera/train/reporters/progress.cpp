#include "tessera/train/reporters/progress.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "tessera/core/log.h"
#include "tessera/core/log_detail.h"
#include "tessera/core/progress_line.h"
#include "tessera/core/strings.h"
#include "tessera/core/terminal_text.h"

namespace tessera::train {

namespace {

// Returns " (chats 1.2345, code 0.9876)"; nothing without datasets.
std::string of_datasets(const std::vector<DatasetLoss>& datasets) {
  constexpr size_t kMostShown = 6;
  std::string shown;
  char text[64];
  for (size_t i = 0; i < std::min(kMostShown, datasets.size()); ++i) {
    std::snprintf(text, sizeof text, "%s%.24s %.4f", i > 0 ? ", " : " (", datasets[i].name.c_str(),
                  datasets[i].loss);
    shown += text;
  }
  if (datasets.size() > kMostShown) shown += ", ...";
  return shown.empty() ? shown : shown + ")";
}

// Returns ", accuracy 0.8431, f1 0.8889"; nothing without metrics.
std::string of_metrics(const NamedMetrics& metrics) {
  std::string shown;
  char text[64];
  for (const auto& [name, value] : metrics) {
    std::snprintf(text, sizeof text, ", %.32s %.4f", name.c_str(), value);
    shown += text;
  }
  return shown;
}

// Returns ", arc_easy/acc 0.5000"; nothing without tasks.
std::string of_tasks(const std::vector<TaskMetric>& tasks) {
  constexpr size_t kMostShown = 8;
  std::string shown;
  char text[96];
  for (size_t i = 0; i < std::min(kMostShown, tasks.size()); ++i) {
    std::snprintf(text, sizeof text, ", %.64s %.4f", tasks[i].name.c_str(), tasks[i].value);
    shown += text;
  }
  return tasks.size() > kMostShown ? shown + ", ..." : shown;
}

// Returns the count in a short form, such as "950", "2.1k" or "1.35B".
std::string short_count(int64_t count) {
  const char* const units[] = {"", "k", "M", "B", "T"};
  auto value = static_cast<double>(count);
  size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < std::size(units); ++unit) value /= 1000.0;
  char text[32];
  std::snprintf(text, sizeof text, "%.*f%s",
                unit == 0 || value >= 99.5 ? 0
                : value >= 9.95            ? 1
                                           : 2,
                value, units[unit]);
  return text;
}

}  // namespace

std::string progress_line(const StepMetrics& m, int64_t total_steps, double seconds_left) {
  const std::string memory =
      format_bytes(m.peak_rss) + (m.peak_device > 0 ? ", GPU " + format_bytes(m.peak_device) : std::string());
  char text[512];
  std::snprintf(
      text, sizeof text,
      "step %ld/%ld  epoch %.2f  loss %.4f%s  lr %.2e  %s tokens  %.0f tokens/s  %.0f%% of roofline  "
      "%s  left %s",
      static_cast<long>(m.step), static_cast<long>(total_steps), m.epoch, m.loss,
      of_datasets(m.datasets).c_str(), m.lr, short_count(m.tokens_seen).c_str(), m.tokens_per_s,
      100.0 * m.sol, memory.c_str(), format_duration(seconds_left).c_str());
  return text;
}

Progress::Progress(int64_t total_steps) : total_steps_(total_steps), is_terminal_(log::is_terminal()) {}

Progress::~Progress() { log::end_open_line(); }

void Progress::on_line(const StepMetrics& metrics) {
  const bool is_first = first_step_ < 0;
  if (is_first) first_step_ = metrics.step;
  last_step_ = metrics.step;
  // The first step warms up, so the pace is that of the steps after it.
  const int64_t timed = metrics.step - first_step_;
  const double pace = timed > 0 ? since_start_.seconds() / static_cast<double>(timed) : metrics.step_s;
  if (is_first) since_start_.restart();
  const std::string line =
      progress_line(metrics, total_steps_, pace * static_cast<double>(total_steps_ - metrics.step));
  show(line, is_first || metrics.step == total_steps_ || log::detail() == log::Detail::All);
}

void Progress::on_evaluating(int64_t done, int64_t total) {
  if (!is_evaluating_) log::end_open_line();
  is_evaluating_ = true;
  show("step " + std::to_string(last_step_) + "/" + std::to_string(total_steps_) + "  evaluating " +
           std::to_string(done) + "/" + std::to_string(total),
       false);
}

void Progress::show(const std::string& line, bool is_due) {
  constexpr double kSecondsBetweenLines = 5.0;
  if (log::detail() == log::Detail::Few) return;
  if (is_terminal_) {
    log::show_open_line(line);
  } else if (is_due || since_line_.seconds() >= kSecondsBetweenLines) {
    std::fprintf(log::stream(), "%s%s\n", log::time_stamp().c_str(), terminal_text(line).c_str());
    since_line_.restart();
  }
}

void Progress::on_evaluation(int64_t step, const Evaluated& evaluated) {
  // The line of the evaluation is of no use once its loss is there; that of a step stays.
  if (is_evaluating_) log::clear_open_line();
  is_evaluating_ = false;
  char loss[32] = "";
  if (evaluated.loss) std::snprintf(loss, sizeof loss, ", loss %.4f", *evaluated.loss);
  const std::string numbers =
      loss + of_datasets(evaluated.datasets) + of_metrics(evaluated.metrics) + of_tasks(evaluated.tasks);
  log::info("eval" + numbers.substr(std::min<size_t>(1, numbers.size())) + " after step " +
            std::to_string(step));
}

}  // namespace tessera::train
