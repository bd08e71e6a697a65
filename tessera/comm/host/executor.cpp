#include "tessera/comm/host/executor.h"

#include <chrono>
#include <optional>

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <omp.h>

#include "tessera/comm/flight_recorder.h"
#include "tessera/core/trace.h"
#include "tessera/device/memory_scope.h"

namespace tessera::comm::detail {

struct Executor::State {
  struct Task {
    std::shared_ptr<PendingWork> work;
    std::function<void()> operation;
    // c10::InferenceMode of the submitter. Tensors that were made in it may be written in it only.
    bool is_in_inference;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> tasks;
  bool is_stopping = false;
  bool is_idle = true;
};

Executor::Executor() : state_(std::make_shared<State>()) {}

Executor::~Executor() {
  if (!thread_.joinable()) return;
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->is_stopping = true;
  state_->changed.notify_all();
  const std::chrono::seconds grace{flight::has_hung() ? 0 : 5};
  const bool is_drained =
      state_->changed.wait_for(lock, grace, [&] { return state_->tasks.empty() && state_->is_idle; });
  lock.unlock();
  if (is_drained) {
    thread_.join();
  } else {
    // The thread goes on in its operation, and holds the state itself.
    thread_.detach();
  }
}

void Executor::submit(std::shared_ptr<PendingWork> work, std::function<void()> operation) {
  if (!thread_.joinable()) thread_ = std::thread(&Executor::run, state_);
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->tasks.push_back({std::move(work), std::move(operation), c10::InferenceMode::is_enabled()});
  state_->changed.notify_all();
}

void Executor::run(std::shared_ptr<State> state) {
  // Sums on this thread must not start a second pool of compute threads.
  at::get_num_threads();  // first, as LibTorch sets its own number on a thread's first use
  omp_set_num_threads(1);
  const MemoryScope memory(MemoryCategory::Communication);
  while (true) {
    State::Task task;
    {
      std::unique_lock<std::mutex> lock(state->mutex);
      state->is_idle = true;
      state->changed.notify_all();
      state->changed.wait(lock, [&] { return !state->tasks.empty() || state->is_stopping; });
      if (state->tasks.empty()) return;
      task = std::move(state->tasks.front());
      state->tasks.pop_front();
      state->is_idle = false;
    }
    std::exception_ptr error;
    std::optional<c10::InferenceMode> inference;
    if (task.is_in_inference) inference.emplace();
    try {
      const trace::Scope scope(task.work->operation(), "communication", trace::Row::Communication,
                               task.work->description());
      task.operation();
    } catch (...) {
      error = std::current_exception();
    }
    task.operation = nullptr;  // lets go of the tensors before anyone is woken
    task.work->finish(error);
  }
}

}  // namespace tessera::comm::detail
