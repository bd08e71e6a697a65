// The memory that the system lets this process and its neighbours have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tessera {

struct MemoryLimit {
  int64_t bytes = 0;  // of all processes that share the limit
  int64_t free = 0;   // of `bytes`; what they have read from files and can be dropped counts as free
};

// Gives the tightest limit of the control groups (versions 1 and 2) that this process is in, as containers
// and batch systems set them; nothing if there is none. `root` is put in front of /proc and /sys.
std::optional<MemoryLimit> memory_limit(const std::string& root = "");

}  // namespace tessera
