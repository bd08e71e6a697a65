#include "tessera/device/device_time.h"

#include <algorithm>
#include <limits>

#include <c10/core/Event.h>

#include "tessera/core/process_stats.h"
#include "tessera/device/device_event.h"

namespace tessera {
namespace {

double seconds_on_host(const std::function<void()>& work) {
  const Timer timer;
  work();
  return timer.seconds();
}

double seconds_on_device(c10::Device device, const std::function<void()>& work) {
  const c10::Stream stream = current_stream(device);
  c10::Event begin(device.type(), c10::EventFlag::BACKEND_DEFAULT),
      end(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  begin.record(stream);
  work();
  end.record(stream);
  end.synchronize();
  return 1e-3 * begin.elapsedTime(end);
}

}  // namespace

double best_seconds(c10::Device device, int rounds, const std::function<void()>& work) {
  work();
  double best = std::numeric_limits<double>::max();
  for (int round = 0; round < rounds; ++round)
    best = std::min(best, has_streams(device) ? seconds_on_device(device, work) : seconds_on_host(work));
  return best;
}

}  // namespace tessera
