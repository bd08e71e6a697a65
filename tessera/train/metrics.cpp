#include "tessera/train/metrics.h"

#include <chrono>
#include <cstdio>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tessera/core/log.h"
#include "tessera/io/file.h"

namespace tessera::train {
namespace {

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

struct MetricsWriter::Files {
  std::FILE* lines = nullptr;
  std::FILE* events = nullptr;
  bool has_warned = false;

  ~Files() {
    if (lines != nullptr) std::fclose(lines);
    if (events != nullptr) std::fclose(events);
  }
  static std::FILE* create(const std::string& path) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (file == nullptr) throw io::storage_error(errno, "cannot write", path);
    return file;
  }
  void put(std::FILE* file, const std::string& bytes) {
    const bool is_written =
        std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size() && std::fflush(file) == 0;
    if (is_written || has_warned) return;
    has_warned = true;
    log::warn("a log of this run cannot be written any more (disk full?); training goes on");
  }
};

MetricsWriter::MetricsWriter(const std::string& folder) : files_(std::make_unique<Files>()) {
  const std::string runs = io::join_path(folder, "runs");
  io::make_directories(runs);
  files_->lines = Files::create(io::join_path(folder, "metrics.jsonl"));
  const double now = wall_time();
  files_->events =
      Files::create(io::join_path(runs, "events.out.tfevents." + std::to_string(static_cast<int64_t>(now)) +
                                            "." + std::to_string(getpid())));
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

void MetricsWriter::write_eval(int64_t step, double eval_loss) {
  append_line(nlohmann::ordered_json({{"step", step}, {"eval_loss", eval_loss}}).dump());
  files_->put(files_->events,
              tensorboard_event(wall_time(), step, {{"eval/loss", static_cast<float>(eval_loss)}}));
}

}  // namespace tessera::train
