#include "tessera/comm/work.h"

#include "tessera/core/error.h"
#include "tessera/core/trace.h"

namespace tessera::comm {

Work::Work() : is_done_(true) {}

Work::Work(std::string description, std::chrono::milliseconds timeout)
    : description_(std::move(description)), timeout_(timeout) {}

void Work::wait() {
  const trace::Scope scope("wait for " + operation(), "wait", trace::Row::Wait, description_);
  std::unique_lock<std::mutex> lock(mutex_);
  if (!finished_.wait_for(lock, timeout_, [&] { return is_done_; })) {
    throw Error(ErrorKind::Hang, "TIMEOUT", description_ + " did not finish")
        .need("all ranks to join within " + std::to_string(timeout_.count() / 1000) + " s")
        .hint("a peer is stuck, slow or gone; raise ddp_timeout if it is only slow");
  }
  if (error_ != nullptr) std::rethrow_exception(error_);
}

bool Work::is_done() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return is_done_;
}

void Work::finish(std::exception_ptr error) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_done_ = true;
    error_ = std::move(error);
  }
  finished_.notify_all();
}

}  // namespace tessera::comm
