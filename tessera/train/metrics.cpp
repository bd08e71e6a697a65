#include "tessera/train/metrics.h"

#include <algorithm>
#include <chrono>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/io/file.h"
#include "tessera/io/log_file.h"

namespace tessera::train {
namespace {

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

void MetricsWindow::add(const StepMetrics& step) {
  const StepMetrics before = sum_;
  sum_ = step;
  sum_.loss = before.loss + step.loss * static_cast<double>(step.label_tokens);
  sum_.tokens += before.tokens;
  sum_.label_tokens += before.label_tokens;
  sum_.step_s += before.step_s;
  products_s_ += step.sol * step.step_s;
  ++num_steps_;
}

StepMetrics MetricsWindow::take() {
  TESSERA_ASSERT(num_steps_ > 0, "a window without steps");
  StepMetrics line = sum_;
  line.loss = sum_.loss / static_cast<double>(std::max<int64_t>(1, sum_.label_tokens));
  line.tokens_per_s = static_cast<double>(sum_.tokens) / sum_.step_s;
  line.sol = products_s_ / sum_.step_s;
  line.step_s = sum_.step_s / static_cast<double>(num_steps_);
  *this = MetricsWindow();
  return line;
}

struct MetricsWriter::Files {
  io::LogFile lines, events;
  bool has_warned = false;

  void put(io::LogFile& file, const std::string& bytes) {
    if (file.append(bytes) || has_warned) return;
    has_warned = true;
    log::warn(file.path() + " cannot be written any more (disk full?); training goes on");
  }
};

MetricsWriter::MetricsWriter(const std::string& folder) {
  const std::string runs = io::join_path(folder, "runs");
  io::make_directories(runs);
  const double now = wall_time();
  const std::string events =
      "events.out.tfevents." + std::to_string(static_cast<int64_t>(now)) + "." + std::to_string(getpid());
  files_ = std::unique_ptr<Files>(new Files{io::LogFile(io::join_path(folder, "metrics.jsonl")),
                                            io::LogFile(io::join_path(runs, events))});
  files_->put(files_->events, tensorboard_header(now));
}

MetricsWriter::~MetricsWriter() = default;

void MetricsWriter::append_line(const std::string& line) { files_->put(files_->lines, line + "\n"); }

void MetricsWriter::write(const StepMetrics& m) {
  const nlohmann::ordered_json line = {{"step", m.step},
                                       {"epoch", m.epoch},
                                       {"loss", m.loss},
                                       {"lr", m.lr},
                                       {"grad_norm", m.grad_norm},
                                       {"tokens", m.tokens},
                                       {"label_tokens", m.label_tokens},
                                       {"tokens_per_s", m.tokens_per_s},
                                       {"step_s", m.step_s},
                                       {"sol", m.sol},
                                       {"peak_rss", m.peak_rss}};
  append_line(line.dump());
  files_->put(files_->events,
              tensorboard_event(wall_time(), m.step,
                                {{"train/loss", static_cast<float>(m.loss)},
                                 {"train/learning_rate", static_cast<float>(m.lr)},
                                 {"train/grad_norm", static_cast<float>(m.grad_norm)},
                                 {"train/tokens_per_s", static_cast<float>(m.tokens_per_s)},
                                 {"train/epoch", static_cast<float>(m.epoch)},
                                 {"train/peak_rss_gib", static_cast<float>(m.peak_rss / 1073741824.0)}}));
}

bool MetricsWriter::put_back() {
  if (files_->lines.is_in_place() && files_->events.is_in_place()) return false;
  for (const io::LogFile* file : {&files_->lines, &files_->events}) {
    io::make_directories(io::parent_path(file->path()));
    file->put_back();
  }
  return true;
}

void MetricsWriter::write_eval(int64_t step, double eval_loss) {
  append_line(nlohmann::ordered_json({{"step", step}, {"eval_loss", eval_loss}}).dump());
  files_->put(files_->events,
              tensorboard_event(wall_time(), step, {{"eval/loss", static_cast<float>(eval_loss)}}));
}

}  // namespace tessera::train
