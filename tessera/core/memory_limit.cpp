#include "tessera/core/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace tessera {
namespace {

struct Version {
  const char *folder, *limit, *usage, *reclaimable;
};
constexpr Version kFirst = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                            "total_inactive_file"};
constexpr Version kSecond = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

// Version 1 writes the largest multiple of a page for no limit; nothing from here on counts as one.
constexpr int64_t kNoLimit = int64_t{1} << 60;

std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream stream(path);
  int64_t value = 0;
  if (!(stream >> value)) return std::nullopt;  // also for "max", which is no limit
  return value;
}

int64_t stat_of(const std::string& path, const std::string& wanted) {
  std::ifstream stream(path);
  std::string key;
  for (int64_t value = 0; stream >> key >> value;) {
    if (key == wanted) return value;
  }
  return 0;
}

std::optional<MemoryLimit> limit_of(const std::string& folder, const Version& version) {
  const auto limit = number_in(folder + "/" + version.limit), usage = number_in(folder + "/" + version.usage);
  if (!limit || !usage || *limit <= 0 || *limit >= kNoLimit) return std::nullopt;
  const int64_t taken = *usage - stat_of(folder + "/memory.stat", version.reclaimable);
  return MemoryLimit{*limit, std::clamp<int64_t>(*limit - taken, 0, *limit)};
}

}  // namespace

std::optional<MemoryLimit> memory_limit(const std::string& root) {
  std::optional<MemoryLimit> tightest;
  std::ifstream groups(root + "/proc/self/cgroup");
  // A line is "4:memory:/a/b", or "0::/a/b" of version 2.
  for (std::string line; std::getline(groups, line);) {
    std::istringstream fields(line);
    std::string number, controllers, path;
    std::getline(fields, number, ':');
    std::getline(fields, controllers, ':');
    std::getline(fields, path);
    const bool is_second = number == "0" && controllers.empty();
    if (!is_second && ("," + controllers + ",").find(",memory,") == std::string::npos) continue;
    const Version& version = is_second ? kSecond : kFirst;
    // The limits of all groups above hold too. A container sees its own group as the root, whatever the path
    // says: folders that are not there are passed over.
    while (true) {
      while (path.ends_with('/')) path.pop_back();
      const auto limit = limit_of(root + version.folder + path, version);
      if (limit && (!tightest || limit->free < tightest->free)) tightest = limit;
      if (path.empty()) break;
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
  return tightest;
}

}  // namespace tessera
