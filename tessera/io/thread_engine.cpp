// The engine of threads.
#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "tessera/io/disk_calls.h"
#include "tessera/io/transfer_engine.h"

namespace tessera::io {
namespace {

// The threads take requests from `queue_`. It, the states of transfers and `ends_` are guarded by `mutex_`; a
// thread moves bytes without it, on a request of its own.
class ThreadEngine : public TransferEngine {
 public:
  ThreadEngine(EngineFile file, int64_t depth) : file_(std::move(file)) {
    for (int64_t i = 0; i < depth; ++i) threads_.emplace_back([this] { work(); });
  }
  ~ThreadEngine() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    has_work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  ThreadEngine(const ThreadEngine&) = delete;
  ThreadEngine& operator=(const ThreadEngine&) = delete;

  void start(const TransferRequest& request) override {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(request);
    }
    has_work_.notify_one();
  }
  void wait(const TransferState& transfer) override {
    std::unique_lock lock(mutex_);
    has_ended_.wait(lock, [&] { return transfer.num_open == 0; });
  }
  bool has_ended(const TransferState& transfer) override {
    const std::lock_guard lock(mutex_);
    return transfer.num_open == 0;
  }
  std::string text() const override { return std::to_string(threads_.size()) + " threads"; }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      has_work_.wait(lock, [&] { return ends_ || !queue_.empty(); });
      if (queue_.empty()) return;
      TransferRequest request = std::move(queue_.front());
      queue_.pop_front();
      for (bool goes_on = true; goes_on;) {
        lock.unlock();
        const int64_t result = move(request);
        lock.lock();
        goes_on = take_result(request, result);
      }
      --request.transfer->num_open;
      has_ended_.notify_all();
    }
  }
  int64_t move(const TransferRequest& request) const {
    const bool is_write = request.transfer->is_write;
    const int64_t bytes = disk::bytes_to_move(is_write ? "write" : "read", file_.path, request.num_bytes);
    if (bytes <= 0) return bytes;
    const int64_t moved = is_write
                              ? disk::write(file_.descriptor, file_.path, request.data, bytes, request.offset)
                              : disk::read(file_.descriptor, file_.path, request.data, bytes, request.offset);
    return moved < 0 ? -errno : moved;
  }

  const EngineFile file_;
  std::mutex mutex_;
  std::condition_variable has_work_, has_ended_;
  std::deque<TransferRequest> queue_;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<TransferEngine> make_thread_engine(const EngineFile& file, int64_t depth) {
  return std::make_unique<ThreadEngine>(file, std::max<int64_t>(1, depth));
}

}  // namespace tessera::io
