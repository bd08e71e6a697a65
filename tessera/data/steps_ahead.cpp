#include "tessera/data/steps_ahead.h"

#include <utility>

#include "tessera/core/error.h"

namespace tessera::data {
namespace {

constexpr size_t kMostSteps = 64;

}  // namespace

StepsAhead::StepsAhead(std::unique_ptr<StepSource> source, size_t depth, int64_t tokens)
    : source_(std::move(source)), depth_(depth), tokens_(tokens), cursor_(source_->cursor()) {
  start();
}

StepsAhead::~StepsAhead() { stop(); }

Step StepsAhead::next_step() {
  TESSERA_ASSERT(thread_.joinable(), "a step behind a seek that failed");
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !made_.empty(); });
  // A failure stays in made_, so that every later call throws it too: the source is not asked again.
  if (made_.front().failure) std::rethrow_exception(made_.front().failure);
  Step step = std::move(made_.front().step);
  made_.pop_front();
  tokens_made_ -= step.tokens;
  changed_.notify_all();
  cursor_ = step.next;
  return step;
}

void StepsAhead::seek(const Cursor& cursor, bool takes_other_data) {
  stop();
  source_->seek(cursor, takes_other_data);
  cursor_ = source_->cursor();
  start();
}

void StepsAhead::start() {
  thread_ = std::thread([this] { make(); });
}

bool StepsAhead::is_full() const {
  return made_.size() >= depth_ && (tokens_made_ >= tokens_ || made_.size() >= kMostSteps);
}

void StepsAhead::make() {
  for (bool has_failed = false; !has_failed;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return is_stopping_ || !is_full(); });
      // A thread that is to stop goes on until as many steps lie ready as ever: see [Note: steps that ranks
      // make together].
      if (is_full()) return;
    }
    Made made;
    try {
      // The mutex is free meanwhile: next_step() takes steps while this one is made.
      made.step = source_->next_step();
    } catch (...) {
      made.failure = std::current_exception();
      has_failed = true;
    }
    const std::lock_guard lock(mutex_);
    tokens_made_ += made.step.tokens;
    made_.push_back(std::move(made));
    changed_.notify_all();
  }
}

void StepsAhead::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
  made_.clear();
  tokens_made_ = 0;
  is_stopping_ = false;
}

}  // namespace tessera::data
