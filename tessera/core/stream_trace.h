// Scopes of a recording (trace.h) whose work runs on a device, later than the code that asks for it: each
// puts a mark at its begin and its end into the queue that its thread fills.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/core/trace.h"

namespace tessera::trace {

// Makes marks; several threads call it at once.
class StreamMarks {
 public:
  virtual ~StreamMarks() = default;
  // Puts a mark behind all that the calling thread has asked for so far and gives its number; -1 if none can
  // be made.
  virtual int64_t mark() noexcept = 0;
};

// A scope between two marks; the number of a mark that was not made is -1.
struct StreamSpan {
  std::string name;
  int32_t thread = 0;  // as Event has it
  bool is_communication = false;
  int64_t begin = -1, end = -1;
};

// Sets who makes marks from the next start() on: for scopes of our own (the categories "tessera" and
// "communication", and none that wait), while `marks` is not null. `marks` must outlive the recording. Call
// this while nothing is recorded.
void set_stream_marks(StreamMarks* marks);

// Gives the spans of the last recording, in the order of their begin for each thread. They are given once.
std::vector<StreamSpan> take_stream_spans();

}  // namespace tessera::trace
