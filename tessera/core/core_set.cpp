#include "tessera/core/core_set.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <tuple>

#include <dirent.h>
#include <sched.h>

#include "tessera/core/error.h"

namespace tessera {
namespace {

// Size of the CPU sets that are asked from the system, beyond what any machine has.
constexpr int kMostCores = 8192;

// A cpu_set_t of kMostCores.
class SystemSet {
 public:
  SystemSet() : set_(CPU_ALLOC(kMostCores)) {
    if (set_ != nullptr) CPU_ZERO_S(num_bytes(), set_);
  }
  ~SystemSet() { CPU_FREE(set_); }
  SystemSet(const SystemSet&) = delete;
  SystemSet& operator=(const SystemSet&) = delete;
  static size_t num_bytes() { return CPU_ALLOC_SIZE(kMostCores); }
  cpu_set_t* get() { return set_; }

 private:
  cpu_set_t* set_;
};

// Reads a number of a core's topology from sysfs; gives `missing` if there is none.
int topology_number(int core, const char* name, int missing) {
  const std::string path =
      "/sys/devices/system/cpu/cpu" + std::to_string(core) + "/topology/" + std::string(name);
  std::FILE* file = std::fopen(path.c_str(), "r");
  if (file == nullptr) return missing;
  int value = missing;
  if (std::fscanf(file, "%d", &value) != 1) value = missing;
  std::fclose(file);
  return value;
}

bool do_overlap(const CoreSet& a, const CoreSet& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](int core) { return std::binary_search(b.begin(), b.end(), core); });
}

}  // namespace

CoreSet usable_core_set() {
  CoreSet cores;
  SystemSet set;
  if (set.get() == nullptr || sched_getaffinity(0, SystemSet::num_bytes(), set.get()) != 0) return cores;
  for (int core = 0; core < kMostCores; ++core) {
    if (CPU_ISSET_S(core, SystemSet::num_bytes(), set.get())) cores.push_back(core);
  }
  return cores;
}

std::string to_string(const CoreSet& cores) {
  std::string text;
  for (size_t i = 0; i < cores.size();) {
    size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    if (!text.empty()) text += ",";
    text += std::to_string(cores[i]);
    if (last > i) text += "-" + std::to_string(cores[last]);
    i = last + 1;
  }
  return text;
}

CoreSet parse_core_set(const std::string& text) {
  CoreSet cores;
  const char* at = text.c_str();
  while (*at != '\0') {
    char* end = nullptr;
    const long first = std::strtol(at, &end, 10);
    long last = first;
    bool is_right = end != at;
    if (is_right && *end == '-') {
      at = end + 1;
      last = std::strtol(at, &end, 10);
      is_right = end != at;
    }
    is_right = is_right && first >= 0 && last >= first && last < kMostCores && (*end == ',' || *end == '\0');
    TESSERA_ASSERT(is_right && (cores.empty() || first > cores.back()), "not a set of cores: " + text);
    for (long core = first; core <= last; ++core) cores.push_back(static_cast<int>(core));
    at = *end == ',' ? end + 1 : end;
  }
  return cores;
}

std::vector<int> by_topology(const CoreSet& cores) {
  std::vector<std::tuple<int, int, int>> places;
  for (const int core : cores) {
    places.emplace_back(topology_number(core, "physical_package_id", 0),
                        topology_number(core, "core_id", core), core);
  }
  std::sort(places.begin(), places.end());
  std::vector<int> order;
  for (const auto& place : places) order.push_back(std::get<2>(place));
  return order;
}

CoreShare share_of_cores(const std::vector<CoreSet>& sets, size_t index, const std::vector<int>& order) {
  const CoreSet& own = sets.at(index);
  CoreShare share;
  size_t num_equal = 0, place = 0, num_overlapping = 0;
  for (size_t i = 0; i < sets.size(); ++i) {
    if (sets[i] == own) {
      if (i < index) ++place;
      ++num_equal;
    } else if (do_overlap(sets[i], own)) {
      ++num_overlapping;
    }
  }
  const size_t num_cores = own.size();
  share.threads = static_cast<int64_t>(std::max<size_t>(1, num_cores / (num_equal + num_overlapping)));
  if (num_equal == 1 || num_overlapping > 0 || num_equal > num_cores) return share;
  const size_t begin = place * num_cores / num_equal, end = (place + 1) * num_cores / num_equal;
  share.cores.assign(order.begin() + static_cast<std::ptrdiff_t>(begin),
                     order.begin() + static_cast<std::ptrdiff_t>(end));
  std::sort(share.cores.begin(), share.cores.end());
  return share;
}

bool bind_process(const CoreSet& cores) {
  SystemSet set;
  if (set.get() == nullptr) return false;
  for (const int core : cores) CPU_SET_S(core, SystemSet::num_bytes(), set.get());
  DIR* threads = opendir("/proc/self/task");
  if (threads == nullptr) return sched_setaffinity(0, SystemSet::num_bytes(), set.get()) == 0;
  bool is_bound = true;
  while (const dirent* entry = readdir(threads)) {
    const int thread = std::atoi(entry->d_name);
    if (thread > 0) is_bound = sched_setaffinity(thread, SystemSet::num_bytes(), set.get()) == 0 && is_bound;
  }
  closedir(threads);
  return is_bound;
}

}  // namespace tessera
