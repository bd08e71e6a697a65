#include "tessera/comm/pending_work.h"

#include "tessera/comm/flight_recorder.h"
#include "tessera/core/error.h"
#include "tessera/core/step_clock.h"
#include "tessera/core/trace.h"

namespace tessera::comm::detail {

void PendingWork::wait() {
  const trace::Scope scope("wait for " + operation(), "wait", trace::Row::Wait, description());
  const flight::WaitScope waiting(place_);
  const SectionScope section(StepSection::Wait);
  std::unique_lock<std::mutex> lock(mutex_);
  while (!finished_.wait_for(lock, timeout_, [&] { return is_done_; })) {
    lock.unlock();
    const flight::Finding finding = flight::look_into(place_, timeout_);
    if (!finding.is_excused) {
      std::string why = description() + " did not finish";
      if (const std::string rest = pending(); !rest.empty()) why += ": " + rest;
      if (!finding.text.empty()) why += ": " + finding.text;
      const std::string file = flight::note_hang(why);
      throw Error(ErrorKind::Hang, "TIMEOUT", why)
          .need("all ranks to join within " + std::to_string(timeout_.count() / 1000) + " s")
          .hint("raise ddp_timeout if a rank is only slow" +
                (file.empty() ? "" : "; the last calls of all ranks are in " + file));
    }
    lock.lock();
  }
  if (error_ != nullptr) std::rethrow_exception(error_);
}

bool PendingWork::is_done() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return is_done_;
}

void PendingWork::finish(std::exception_ptr error) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_done_ = true;
    error_ = std::move(error);
  }
  flight::end(place_);
  finished_.notify_all();
}

}  // namespace tessera::comm::detail
