#include "tessera/hub/cache.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "tessera/core/environment.h"
#include "tessera/io/file.h"

namespace tessera::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOfModel = "models--";

std::string folder_name(const Repository& repository) {
  std::string folder(repository.kind == Kind::Model ? kOfModel : "datasets--");
  for (const char c : repository.id) folder += c == '/' ? std::string("--") : std::string(1, c);
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

std::string Repository::shown() const {
  return (kind == Kind::Model ? "model " : "dataset ") + id +
         (revision.empty() ? "" : " at revision " + revision);
}

std::string Repository::folder() const { return io::join_path(cache_folder(), folder_name(*this)); }

std::string Repository::lock_folder() const {
  return io::join_path(cache_folder(), ".locks/" + folder_name(*this));
}

std::string Repository::snapshot_folder(const std::string& commit) const {
  return folder() + "/snapshots/" + commit;
}

std::string Repository::names_file(const std::string& commit) const { return folder() + "/names/" + commit; }

std::string Repository::blob(const std::string& etag) const { return folder() + "/blobs/" + etag; }

bool is_plain_name(std::string_view text) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return !text.empty() && text.find_first_not_of(kLetters) == std::string_view::npos && text != "." &&
         text != "..";
}

bool is_inner_path(std::string_view path) {
  const auto is_odd = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == '\\' || c == 0x7f; };
  if (std::any_of(path.begin(), path.end(), is_odd)) return false;
  while (true) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

bool is_hub_id(const std::string& path) {
  const size_t slash = path.find('/');
  if (slash == std::string::npos) return is_plain_name(path);
  return is_plain_name(path.substr(0, slash)) && is_plain_name(path.substr(slash + 1));
}

std::string hub_home() {
  if (const auto home = environment::get("HF_HOME")) return *home;
  if (const auto caches = environment::get("XDG_CACHE_HOME")) return io::join_path(*caches, "huggingface");
  return io::join_path(environment::get("HOME").value_or("/"), ".cache/huggingface");
}

std::string cache_folder() {
  if (const auto folder = environment::get("HF_HUB_CACHE")) return *folder;
  return io::join_path(hub_home(), "hub");
}

std::optional<std::string> find_snapshot(const Repository& repository, bool takes_only) {
  if (!is_hub_id(repository.id)) return std::nullopt;
  const fs::path folder = repository.folder();
  std::string commit = repository.wanted();
  if (std::ifstream reference(folder / "refs" / commit); reference) reference >> commit;
  std::error_code error;
  if (is_plain_name(commit) && fs::is_directory(repository.snapshot_folder(commit), error))
    return repository.snapshot_folder(commit);
  return takes_only && repository.revision.empty() ? only_snapshot(folder) : std::nullopt;
}

std::string model_of_snapshot(const std::string& folder) {
  const fs::path snapshots = fs::path(folder).parent_path();
  std::string name = snapshots.parent_path().filename().string();
  if (snapshots.filename() != "snapshots" || !name.starts_with(kOfModel)) return "";
  name.erase(0, kOfModel.size());
  if (const size_t dashes = name.find("--"); dashes != std::string::npos) name.replace(dashes, 2, "/");
  return is_hub_id(name) ? name : "";
}

std::string download_command(const Repository& repository) {
  return "hf download " + std::string(repository.kind == Kind::Dataset ? "--repo-type dataset " : "") +
         repository.id + (repository.revision.empty() ? "" : " --revision " + repository.revision);
}

}  // namespace tessera::hub
