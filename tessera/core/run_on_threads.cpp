#include "tessera/core/run_on_threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace tessera {

void run_on_threads(size_t count, int64_t num_threads, const std::function<void(size_t)>& work_on) {
  const auto num_workers = std::max<size_t>(1, std::min(static_cast<size_t>(num_threads), count));
  std::atomic<size_t> next = 0;
  std::vector<std::exception_ptr> failures(num_workers);
  const auto work = [&](size_t worker) {
    try {
      for (size_t i = next++; i < count; i = next++) work_on(i);
    } catch (...) {
      failures[worker] = std::current_exception();
    }
  };
  {
    // A jthread is joined even when starting a later one fails.
    std::vector<std::jthread> threads;
    for (size_t worker = 1; worker < num_workers; ++worker) threads.emplace_back(work, worker);
    work(0);
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace tessera
