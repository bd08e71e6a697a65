#include "tessera/comm/pending_work.h"

#include <algorithm>

#include "tessera/comm/flight_recorder.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/step_clock.h"
#include "tessera/core/trace.h"

namespace tessera::comm::detail {

namespace {

// After this time without an end, or half of the timeout, a waiting rank says what it waits for.
constexpr std::chrono::seconds kTellAfter{30};

}  // namespace

void PendingWork::wait() {
  const auto tell_after = std::min<std::chrono::milliseconds>(kTellAfter, timeout_ / 2);
  wait_while([this, tell_after](std::unique_lock<std::mutex>& lock) {
    const auto is_done = [this] { return is_done_; };
    if (finished_.wait_for(lock, tell_after, is_done)) return false;
    lock.unlock();
    tell_delay(tell_after);
    lock.lock();
    if (finished_.wait_for(lock, timeout_ - tell_after, is_done)) return false;
    // The work may end while hang() reads the other ranks' notes; if the delay is excused, the wait begins
    // anew.
    lock.unlock();
    if (const std::optional<Error> error = hang()) throw *error;
    lock.lock();
    return true;
  });
}

void PendingWork::wait_for_end() {
  wait_while([this](std::unique_lock<std::mutex>& lock) {
    finished_.wait(lock, [this] { return is_done_; });
    return false;
  });
}

void PendingWork::wait_while(const std::function<bool(std::unique_lock<std::mutex>&)>& is_open) {
  const trace::Scope scope("wait for " + operation(), "wait", trace::Row::Wait, description());
  const flight::WaitScope waiting(place_);
  const SectionScope section(StepSection::Wait);
  std::unique_lock<std::mutex> lock(mutex_);
  while (is_open(lock)) continue;
  if (error_ != nullptr) std::rethrow_exception(error_);
}

void PendingWork::tell_delay(std::chrono::milliseconds waited) const {
  const flight::Finding finding = flight::look_into(place_, waited);
  if (finding.is_excused || finding.text.empty() || !flight::is_first_to_tell()) return;
  log::tell("warning: " + description() + " has not finished for " + std::to_string(waited.count() / 1000) +
            " s: " + finding.text + ". The wait ends with an error after " +
            std::to_string(timeout_.count() / 1000) + " s");
}

std::optional<Error> PendingWork::hang() const {
  const flight::Finding finding = flight::look_into(place_, timeout_);
  if (finding.is_excused) return std::nullopt;
  std::string why = description() + " did not finish";
  if (const std::string rest = pending(); !rest.empty()) why += ": " + rest;
  if (!finding.text.empty()) why += ": " + finding.text;
  const std::string file = flight::note_hang(why);
  return Error(ErrorKind::Hang, "TIMEOUT", why)
      .need("all ranks to join within " + std::to_string(timeout_.count() / 1000) + " s")
      .hint("if a rank is only slow, raise ddp_timeout" +
            (file.empty() ? "" : "; the last calls of all ranks are in " + file));
}

void PendingWork::check() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_ != nullptr) std::rethrow_exception(error_);
}

void PendingWork::then(std::function<void(std::exception_ptr)> next) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!is_done_) {
      next_ = std::move(next);
      return;
    }
  }
  next(error_);
}

bool PendingWork::is_done() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return is_done_;
}

void PendingWork::finish(std::exception_ptr error) {
  std::function<void(std::exception_ptr)> next;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_done_ = true;
    error_ = error;
    next = std::move(next_);
  }
  flight::end(place_);
  finished_.notify_all();
  if (next) next(error);
}

}  // namespace tessera::comm::detail
