#include "tessera/comm/pending_work.h"

#include "tessera/core/error.h"
#include "tessera/core/trace.h"

namespace tessera::comm::detail {

void PendingWork::wait() {
  const trace::Scope scope("wait for " + operation(), "wait", trace::Row::Wait, description());
  std::unique_lock<std::mutex> lock(mutex_);
  if (!finished_.wait_for(lock, timeout_, [&] { return is_done_; })) {
    lock.unlock();
    const std::string rest = pending();
    throw Error(ErrorKind::Hang, "TIMEOUT",
                description() + " did not finish" + (rest.empty() ? "" : ": " + rest))
        .need("all ranks to join within " + std::to_string(timeout_.count() / 1000) + " s")
        .hint("a peer is stuck, slow or gone; raise ddp_timeout if it is only slow");
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
  finished_.notify_all();
}

}  // namespace tessera::comm::detail
