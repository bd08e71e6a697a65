#include "tessera/config/hub_cache.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "tessera/core/environment.h"

namespace tessera::config {
namespace {

namespace fs = std::filesystem;

bool is_name(std::string_view text) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return !text.empty() && text.find_first_not_of(kLetters) == std::string_view::npos && text != "." &&
         text != "..";
}

std::string repository_folder(HubKind kind, const std::string& id) {
  std::string folder = kind == HubKind::Model ? "models--" : "datasets--";
  for (const char c : id) folder += c == '/' ? std::string("--") : std::string(1, c);
  return folder;
}

// Returns the snapshot of a repository if there is exactly one.
std::optional<std::string> only_snapshot(const fs::path& repository) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(repository / "snapshots", error), end; !error && it != end;
       it.increment(error))
    found.push_back(it->path().string());
  if (found.size() != 1) return std::nullopt;
  return found[0];
}

}  // namespace

bool is_hub_id(const std::string& path) {
  const size_t slash = path.find('/');
  if (slash == std::string::npos) return is_name(path);
  return is_name(path.substr(0, slash)) && is_name(path.substr(slash + 1));
}

std::string hub_cache_folder() {
  if (const auto folder = environment::get("HF_HUB_CACHE")) return *folder;
  if (const auto home = environment::get("HF_HOME")) return (fs::path(*home) / "hub").string();
  const std::string home = environment::get("HOME").value_or("/");
  return (fs::path(home) / ".cache/huggingface/hub").string();
}

std::optional<std::string> find_in_hub_cache(HubKind kind, const std::string& id,
                                             const std::string& revision) {
  if (!is_hub_id(id)) return std::nullopt;
  const fs::path repository = fs::path(hub_cache_folder()) / repository_folder(kind, id);
  const std::string wanted = revision.empty() ? "main" : revision;
  std::string commit = wanted;
  if (std::ifstream reference(repository / "refs" / wanted); reference) reference >> commit;
  const fs::path snapshot = repository / "snapshots" / commit;
  std::error_code error;
  if (is_name(commit) && fs::is_directory(snapshot, error)) return snapshot.string();
  return revision.empty() ? only_snapshot(repository) : std::nullopt;
}

std::string download_command(HubKind kind, const std::string& id, const std::string& revision) {
  return "hf download " + std::string(kind == HubKind::Dataset ? "--repo-type dataset " : "") + id +
         (revision.empty() ? "" : " --revision " + revision);
}

}  // namespace tessera::config
