// Tells people who wait how far a download is.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace tessera::hub {

// Counts the bytes of a download, from several threads. On a terminal one line is written over and over;
// elsewhere a line appears every ten seconds.
class Progress {
 public:
  // `bytes_before` have been there before.
  Progress(std::string name, int64_t total_bytes, int64_t bytes_before);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Counts bytes; a negative number takes back what must be fetched again.
  void add(int64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;

  const std::string name_;
  const int64_t total_bytes_;
  const bool is_terminal_;
  std::mutex mutex_;
  int64_t bytes_, new_bytes_ = 0;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point next_;
};

// Returns a line such as "org/name: [=====>    ] 52 % of 2.1 GiB, 120.4 MiB/s, 8s left". `new_bytes` of
// `bytes` took `seconds`.
std::string progress_line(const std::string& name, int64_t bytes, int64_t total_bytes, int64_t new_bytes,
                          double seconds);

}  // namespace tessera::hub
