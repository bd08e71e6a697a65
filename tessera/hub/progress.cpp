#include "tessera/hub/progress.h"

#include <algorithm>
#include <utility>

#include "tessera/core/log.h"
#include "tessera/core/progress_line.h"
#include "tessera/core/strings.h"

namespace tessera::hub {
namespace {

constexpr std::chrono::milliseconds kPause(10000), kTerminalPause(200);
constexpr double kBarWidth = 24;

}  // namespace

Progress::Progress(std::string name, int64_t total_bytes, int64_t bytes_before)
    : name_(std::move(name)),
      total_bytes_(total_bytes),
      is_terminal_(log::is_terminal()),
      bytes_(bytes_before) {
  next_ = begin_ + (is_terminal_ ? kTerminalPause : kPause);
}

// The line gives its place to whatever comes next.
Progress::~Progress() { log::clear_open_line(); }

void Progress::add(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes_ += bytes;
  new_bytes_ += bytes;
  const auto now = Clock::now();
  if (now < next_) return;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const std::string line = progress_line(name_, bytes_, total_bytes_, new_bytes_, seconds);
  if (is_terminal_) {
    log::show_open_line(line);
    next_ = now + kTerminalPause;
  } else {
    log::tell(line);
    next_ = now + kPause;
  }
}

std::string progress_line(const std::string& name, int64_t bytes, int64_t total_bytes, int64_t new_bytes,
                          double seconds) {
  const double share =
      total_bytes > 0 ? std::clamp(static_cast<double>(bytes) / static_cast<double>(total_bytes), 0.0, 1.0)
                      : 1.0;
  const auto filled = static_cast<size_t>(share * kBarWidth);
  const double speed = seconds > 0 ? static_cast<double>(std::max<int64_t>(new_bytes, 0)) / seconds : 0.0;
  std::string line = name + ": [" + std::string(filled, '=') +
                     std::string(static_cast<size_t>(kBarWidth) - filled, ' ') + "] " +
                     std::to_string(static_cast<int>(share * 100)) + " % of " + format_bytes(total_bytes) +
                     ", " + format_bytes(static_cast<int64_t>(speed)) + "/s";
  if (speed > 0 && total_bytes > bytes)
    line += ", " + format_duration(static_cast<double>(total_bytes - bytes) / speed) + " left";
  return line;
}

}  // namespace tessera::hub
