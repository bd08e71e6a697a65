// Records the timeline of a training step: every LibTorch operation, autograd node and scope of ours on every
// rank, written as one file for Perfetto or chrome://tracing, and summed by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/core/trace.h"
#include "tessera/measure/device_marks.h"

namespace tessera::measure {

// Events of a device have thread numbers from here on: this plus the thread that submitted their work.
inline constexpr int32_t kDeviceThreads = 1 << 16;

// Records from construction to stop(). The constructor is collective: it begins with a barrier, so that the
// ranks' clocks can be aligned. No other thread may run LibTorch operations at construction and stop(). Where
// the ranks compute on a GPU, scopes of ours are recorded twice: when their code ran, and when the device did
// their work.
class StepTrace {
 public:
  // The most events of a rank; those that come after are dropped and counted. A step of a large model has
  // some 10^4.
  static constexpr int64_t kMaxEvents = 400'000;

  explicit StepTrace(comm::Communicator& world);
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;
  // Ends the recording, and returns it.
  trace::Recording stop();

 private:
  uint64_t callback_ = 0;
  bool is_recording_ = true;
  std::unique_ptr<DeviceMarks> marks_;  // null on the host
};

// The first bytes of every file of write_trace(): the list of events, and the name of the first rank.
inline constexpr const char* kTraceBegin = "{\"traceEvents\":[\n{\"name\":\"process_name\"";

// Writes all ranks' events to `path`, a file of rank 0, atomically. Times are microseconds since the
// beginning of the recording, at which the ranks met: ranks of one machine share a clock, and machines are
// aligned by the barrier. Collective. Throws Error(Storage) on rank 0 when the file cannot be written.
void write_trace(const std::string& path, const trace::Recording& recording, comm::Communicator& world);

// Time of all events of one name; `self_s` leaves out the events inside them.
struct TraceLine {
  std::string name;
  double self_s = 0.0;
  double share = 0.0;  // of the recording
  int64_t count = 0;
};

// Sums up by name, largest self time first, the events of the thread that recorded; where there are events of
// a device, those of its computation instead. The last line, "(no event)", is the time in which no event ran
// at all.
std::vector<TraceLine> summarize(const trace::Recording& recording);

// Returns a name for people: "LinearFunction backward" for "torch::autograd::CppNode<a::LinearFunction>".
std::string readable_name(const std::string& name);

}  // namespace tessera::measure
