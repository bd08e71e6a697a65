// How long work takes where it runs.
#pragma once

#include <functional>

#include <c10/core/Device.h>

namespace tessera {

// The shortest of `rounds` runs of `work`, in seconds; one more run comes before them. On a GPU `work` is
// enqueued on the current stream of `device` and timed there, by events; on the host, by the clock.
double best_seconds(c10::Device device, int rounds, const std::function<void()>& work);

}  // namespace tessera
