#include "tessera/core/process_stats.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "tessera/core/core_set.h"
#include "tessera/core/memory_limit.h"

namespace tessera {
namespace {

// Gives the value of "<key>: N kB" in a /proc file, in bytes; 0 if it is not there.
int64_t proc_kilobytes(const char* file, const char* key) {
  std::FILE* stream = std::fopen(file, "r");
  if (stream == nullptr) return 0;
  char line[256];
  int64_t bytes = 0;
  const size_t length = std::strlen(key);
  while (std::fgets(line, sizeof line, stream) != nullptr) {
    long value = 0;
    if (std::strncmp(line, key, length) == 0 && line[length] == ':' &&
        std::sscanf(line + length + 1, "%ld", &value) == 1) {
      bytes = static_cast<int64_t>(value) * 1024;
      break;
    }
  }
  std::fclose(stream);
  return bytes;
}

}  // namespace

double Timer::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

int64_t peak_rss_bytes() { return proc_kilobytes("/proc/self/status", "VmHWM"); }
int64_t current_rss_bytes() { return proc_kilobytes("/proc/self/status", "VmRSS"); }
int64_t total_memory_bytes() { return proc_kilobytes("/proc/meminfo", "MemTotal"); }

int64_t usable_memory_bytes() {
  const auto limit = memory_limit();
  return limit ? std::min(limit->bytes, total_memory_bytes()) : total_memory_bytes();
}

int64_t available_memory_bytes() {
  const int64_t free = proc_kilobytes("/proc/meminfo", "MemAvailable");
  const auto limit = memory_limit();
  return limit ? std::min(limit->free, free) : free;
}

double running_threads_of_others() {
  constexpr int kNumLooks = 20;
  double sum = 0.0;
  for (int look = 0; look < kNumLooks; ++look) {
    std::FILE* stream = std::fopen("/proc/loadavg", "r");
    if (stream == nullptr) return 0.0;
    int running = 1;
    if (std::fscanf(stream, "%*f %*f %*f %d", &running) != 1) running = 1;
    std::fclose(stream);
    sum += running - 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return sum / kNumLooks;
}

int64_t usable_cores() { return std::max<int64_t>(1, std::ssize(usable_core_set())); }

ProcessStatus process_status(int id) {
  std::ifstream file("/proc/" + std::to_string(id) + "/stat");
  std::string text;
  std::getline(file, text);
  // The line is "ID (NAME) STATE PARENT ...", where a name may hold anything, a ')' too.
  ProcessStatus status;
  const size_t end = text.rfind(')');
  if (end != std::string::npos) std::sscanf(text.c_str() + end, ") %c %d", &status.state, &status.parent);
  return status;
}

}  // namespace tessera
