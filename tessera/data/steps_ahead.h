// Steps that are made before they are needed.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tessera/data/step_source.h"

namespace tessera::data {

// Of each data rank: about what the text holds that a rank of a stream tokenises at a time.
inline constexpr int64_t kTokensAhead = int64_t{1} << 18;

// Gives the steps of another source, which a thread makes from the beginning on, and while the last ones are
// being used. The cursor is that of the steps given.
//
// [Note: steps that ranks make together] The source may be collective on that thread, so no rank may stop
// between two steps that the others still make. Therefore seek() and the destructor, too, first let the
// thread make all the steps that would lie ready: how many are made is then a function of the calls here
// alone, which are the same on every rank.
class StepsAhead : public StepSource {
 public:
  // What lies ready: `depth` steps, and more of them, up to 64, while they hold fewer than `tokens` tokens of
  // all ranks. A stream makes its rows many at a time, between which nothing comes: where as many lie ready,
  // a step waits only where it is faster than the stream on the whole.
  explicit StepsAhead(std::unique_ptr<StepSource> source, size_t depth = 2, int64_t tokens = 0);
  ~StepsAhead() override;
  StepsAhead(const StepsAhead&) = delete;
  StepsAhead& operator=(const StepsAhead&) = delete;

  // Throws what the source threw when it made this step, and not before. Never collective.
  Step next_step() override;
  Cursor cursor() const override { return cursor_; }
  void seek(const Cursor& cursor, bool takes_other_data = false) override;

  std::vector<std::string> datasets() const override { return source_->datasets(); }
  int64_t samples_per_step() const override { return source_->samples_per_step(); }
  int64_t steps_per_epoch() const override { return source_->steps_per_epoch(); }

 private:
  struct Made {
    Step step;
    std::exception_ptr failure;
  };
  bool is_full() const;
  void make();
  void start();
  void stop();

  std::unique_ptr<StepSource> source_;  // of the thread, while there is one
  const size_t depth_;
  const int64_t tokens_;
  Cursor cursor_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Made> made_;
  int64_t tokens_made_ = 0;  // of these
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace tessera::data
