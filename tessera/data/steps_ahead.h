// Makes steps before they are needed.
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

// Number of tokens to have ready for each data rank. It is about the number of tokens in the text that a rank
// of a stream tokenises at a time.
inline constexpr int64_t kTokensAhead = int64_t{1} << 18;

// Gives the steps of another source. A thread makes them from the beginning on, while the steps before them
// are being used. cursor() is that of the steps given, not of the steps made.
//
// [Note: steps that ranks make together] The source may be collective on that thread, so no rank may stop
// between two steps that the others still make. Therefore seek() and the destructor, too, first let the
// thread make all the steps that would lie ready: how many are made is then a function of the calls here
// alone, which are the same on every rank.
class StepsAhead : public StepSource {
 public:
  // The thread keeps `depth` steps ready, and more of them, up to 64, while they hold fewer than `tokens`
  // tokens of all ranks. More are of use because a stream makes its rows many at a time, and nothing in
  // between: if that many tokens lie ready, next_step() waits only when training is faster than the stream on
  // the whole.
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

  std::unique_ptr<StepSource> source_;  // only the thread uses it, while there is one
  const size_t depth_;
  const int64_t tokens_;
  Cursor cursor_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Made> made_;
  int64_t tokens_made_ = 0;  // tokens of made_
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace tessera::data
