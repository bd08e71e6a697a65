// How the calls of an answer are read, and the result of reading them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/text/tool_calls/read_calls.h"

namespace tessera::text {

struct CallReading {
  const ToolFormat* format = nullptr;
  std::string named;  // if not empty, the whole answer is the arguments of this function
  ToolParameters tools;
  bool only_one = false;  // what comes behind a first call is dropped
};

// A part of a call: its name comes with its first part, and with no other.
struct CallDelta {
  int64_t index = 0;  // among the calls of the answer
  std::string name, arguments;
};

struct AnswerDelta {
  std::string text;
  std::string reasoning;  // of models that write it in a channel of its own
  std::vector<CallDelta> calls;
};

}  // namespace tessera::text
