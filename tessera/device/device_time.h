// How long work takes where it runs.
#pragma once

#include <functional>

#include <c10/core/Device.h>

namespace tessera {

// Runs `work` once, then `rounds` times, and gives the shortest time of these, in seconds. On a GPU `work` is
// enqueued on the current stream of `device` and timed there, by events; on the host, by the clock.
double best_seconds(c10::Device device, int rounds, const std::function<void()>& work);

}  // namespace tessera
