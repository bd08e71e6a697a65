// The wall clock, for what other programs read.
#pragma once

#include <chrono>
#include <cstdint>

namespace tessera {

// The time since 1970, UTC.
inline int64_t unix_time_ns() {
  using std::chrono::nanoseconds, std::chrono::system_clock;
  return std::chrono::duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
}
inline int64_t unix_time_ms() { return unix_time_ns() / 1'000'000; }
inline double unix_time_s() { return static_cast<double>(unix_time_ns()) * 1e-9; }

}  // namespace tessera
