// Finds other processes of the machine, as /proc shows them.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tessera::testing {

inline std::string read_file_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

// Returns the processes that descend from `root`, with their command lines.
inline std::vector<std::pair<pid_t, std::string>> processes_below(pid_t root) {
  std::vector<std::pair<pid_t, std::string>> found;
  std::set<pid_t> known = {root};
  for (bool has_grown = true; has_grown;) {
    has_grown = false;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const pid_t id = std::stoi(name);
      if (known.contains(id)) continue;
      const std::string stat = read_file_text("/proc/" + name + "/stat");
      const size_t end = stat.rfind(')');
      if (end == std::string::npos || !known.contains(std::stoi(stat.substr(end + 4)))) continue;
      known.insert(id);
      found.emplace_back(id, read_file_text("/proc/" + name + "/cmdline"));
      has_grown = true;
    }
  }
  return found;
}

// Waits until none of the processes runs any more. One that still runs after 20 s is a failure, and is
// killed.
inline void expect_gone(const std::vector<pid_t>& ids) {
  const auto is_gone = [](pid_t id) {
    const std::string stat = read_file_text("/proc/" + std::to_string(id) + "/stat");
    return stat.empty() || stat.find(") Z") != std::string::npos;
  };
  for (int wait = 0; wait < 2000 && !std::all_of(ids.begin(), ids.end(), is_gone); ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  for (const pid_t id : ids) {
    EXPECT_TRUE(is_gone(id)) << "process " << id << " lives on";
    if (!is_gone(id)) kill(id, SIGKILL);
  }
}

// Stops the process and waits until it is stopped; returns false if it has ended. Whatever a test then sees
// of the process stays so until SIGCONT or SIGKILL, so a fault that the test causes does not come too late.
inline bool hold(pid_t id) {
  kill(id, SIGSTOP);
  while (true) {
    const std::string stat = read_file_text("/proc/" + std::to_string(id) + "/stat");
    const size_t end = stat.rfind(')');
    if (end == std::string::npos || stat.compare(end, 3, ") Z") == 0 || stat.compare(end, 3, ") X") == 0)
      return false;
    if (stat.compare(end, 3, ") T") == 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Returns a variable of a process's environment; empty if it is not set.
inline std::string variable_of(pid_t id, const std::string& name) {
  std::istringstream stream(read_file_text("/proc/" + std::to_string(id) + "/environ"));
  for (std::string entry; std::getline(stream, entry, '\0');) {
    if (entry.rfind(name + "=", 0) == 0) return entry.substr(name.size() + 1);
  }
  return "";
}

// Returns the ranks that descend from `root`, in the order of their numbers. Processes that a rank has
// started itself do not count.
inline std::vector<pid_t> ranks_below(pid_t root) {
  std::map<int, pid_t> found;
  for (const auto& [id, command] : processes_below(root)) {
    const std::string rank = variable_of(id, "OMPI_COMM_WORLD_RANK");
    if (!rank.empty()) found.emplace(std::stoi(rank), id);
  }
  std::vector<pid_t> ids;
  for (const auto& [rank, id] : found) ids.push_back(id);
  return ids;
}

}  // namespace tessera::testing
