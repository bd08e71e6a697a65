#include "tessera/io/file_pattern.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>

#include <fnmatch.h>

namespace tessera::io {
namespace {

constexpr std::string_view kDescriptions[] = {"README.md",          "config.json",    "dataset_info.json",
                                              "dataset_infos.json", "dummy_data.zip", "dataset_dict.json"};

// The parts of a path that are left out, unless a pattern has as many.
struct Unusual {
  int64_t hidden = 0, special_folders = 0;

  explicit Unusual(const std::filesystem::path& path) {
    for (const std::filesystem::path& part : path) hidden += part.string().starts_with('.') ? 1 : 0;
    for (const std::filesystem::path& part : path.parent_path())
      special_folders += part.string().starts_with("__") ? 1 : 0;
  }
  bool operator==(const Unusual&) const = default;
};

// Returns whether a pattern that the name fits asks for this file.
bool is_meant(const std::filesystem::path& name, const std::filesystem::path& pattern) {
  const bool describes = std::ranges::find(kDescriptions, name.filename()) != std::end(kDescriptions);
  return (!describes || name.filename() == pattern.filename()) && Unusual(name) == Unusual(pattern);
}

}  // namespace

bool fits_pattern(const std::string& name, const std::string& pattern) {
  const bool crosses = pattern.find("**") != std::string::npos;
  const auto fits = [&](const std::string& text) {
    return ::fnmatch(text.c_str(), name.c_str(), crosses ? 0 : FNM_PATHNAME) == 0;
  };
  if (fits(pattern)) return true;
  const size_t at = pattern.find("**/");
  return at != std::string::npos && fits(std::string(pattern).erase(at, 3));
}

MatchedFiles match_files(std::vector<std::string> names, const std::vector<std::string>& patterns) {
  std::ranges::sort(names);
  MatchedFiles matched;
  std::set<std::string> taken;
  for (const std::string& pattern : patterns) {
    bool is_found = false;
    for (const std::string& name : names) {
      if (!fits_pattern(name, pattern) || !is_meant(name, pattern)) continue;
      is_found = true;
      if (taken.insert(name).second) matched.names.push_back(name);
    }
    if (!is_found && matched.unmatched.empty()) matched.unmatched = pattern;
  }
  return matched;
}

}  // namespace tessera::io
