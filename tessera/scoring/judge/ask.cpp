#include "tessera/scoring/judge/ask.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>

#include "tessera/core/log.h"
#include "tessera/core/progress_line.h"
#include "tessera/core/run_on_threads.h"
#include "tessera/io/broken_pipes.h"

namespace tessera::scoring::judge {
namespace {

// Counts answered and refused requests; several threads use it.
class Progress {
 public:
  Progress(std::string doing, size_t count) : doing_(std::move(doing)), count_(count) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { log::clear_open_line(); }

  void add() {
    const std::lock_guard lock(mutex_);
    ++done_;
    const std::string line = doing_ + ": " + std::to_string(done_) + " of " + std::to_string(count_);
    if (log::is_terminal()) log::show_open_line(line);
    if (log::is_terminal() || Clock::now() < next_) return;
    log::info(line);
    next_ = Clock::now() + kPause;
  }
  void refuse(const Error& error) {
    const std::lock_guard lock(mutex_);
    ++refused_;
    if (!first_) first_ = error;
  }
  void check_refused() {
    if (!first_) return;
    if (refused_ == 1) throw *first_;
    throw first_->within(std::to_string(refused_) + " of " + std::to_string(count_) +
                         " were refused, the first");
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPause{10};

  const std::string doing_;
  const size_t count_;
  std::mutex mutex_;
  size_t done_ = 0, refused_ = 0;
  std::optional<Error> first_;
  Clock::time_point next_ = Clock::now() + kPause;
};

}  // namespace

void ask_each(const EndpointOptions& options, size_t count, int64_t parallel, const std::string& doing,
              const std::function<void(Endpoint& endpoint, size_t i)>& work) {
  const io::IgnoreBrokenPipes ignored;
  Progress progress(doing, count);
  std::atomic<bool> stop = false;
  std::atomic<size_t> next = 0;
  const auto ask = [&](Endpoint& endpoint, size_t i) {
    try {
      work(endpoint, i);
      progress.add();
    } catch (const Error& error) {
      if (error.code() != kRefusedCode) throw;
      progress.refuse(error);
    }
  };
  const size_t num_threads = std::min(count, static_cast<size_t>(parallel));
  run_on_threads(num_threads, parallel, [&](size_t) {
    try {
      Endpoint endpoint(options, stop);
      for (size_t i = next++; i < count && !stop; i = next++) ask(endpoint, i);
    } catch (...) {
      stop = true;
      throw;
    }
  });
  progress.check_refused();
}

}  // namespace tessera::scoring::judge
