// A loop whose turns run on several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace tessera {

// Calls work_on(i) for each i below `count`, on up to `num_threads` threads (this one among them). Throws one
// of the errors that the calls throw, once all threads are done.
void run_on_threads(size_t count, int64_t num_threads, const std::function<void(size_t)>& work_on);

}  // namespace tessera
