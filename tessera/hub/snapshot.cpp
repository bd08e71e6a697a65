#include "tessera/hub/snapshot.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <map>

#include "tessera/core/error.h"
#include "tessera/io/file.h"

namespace tessera::hub {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxNamesBytes = int64_t{256} << 20;

// Returns the files below a folder; links to blobs that are not there are left out.
Names names_below(const fs::path& folder) {
  Names names;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code broken;
    if (it->is_regular_file(broken)) names.insert(it->path().lexically_relative(folder).string());
  }
  return names;
}

// Splits "a-00001-of-00004.parquet" into its number and the names of all parts.
bool parse_part(const std::string& name, std::string& common, int& count) {
  const size_t of = name.rfind("-of-");
  if (of == std::string::npos) return false;
  const size_t dash = name.rfind('-', of - 1);
  if (of == 0 || dash == std::string::npos || dash + 1 == of) return false;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (!std::all_of(name.begin() + static_cast<std::ptrdiff_t>(dash) + 1,
                   name.begin() + static_cast<std::ptrdiff_t>(of), is_digit))
    return false;
  const char* const begin = name.data() + of + 4;
  const auto [end, fault] = std::from_chars(begin, name.data() + name.size(), count);
  common = name.substr(0, dash) + std::string(begin, name.data() + name.size());
  return fault == std::errc() && end != begin;
}

bool has_all_parts(const std::vector<std::string>& files) {
  std::map<std::string, std::pair<int, int>> parts;  // by their common name: how many, of how many
  for (const std::string& name : files) {
    std::string common;
    int count = 0;
    if (!parse_part(name, common, count)) continue;
    auto& [found, whole] = parts[common];
    ++found;
    whole = count;
  }
  return std::all_of(parts.begin(), parts.end(),
                     [](const auto& part) { return part.second.first >= part.second.second; });
}

void link_file(const fs::path& folder, const RemoteFile& file) {
  const fs::path link = folder / file.name;
  io::make_directories(link.parent_path().string());
  std::string target = "../../blobs/" + file.etag;
  for (auto left = std::count(file.name.begin(), file.name.end(), '/'); left > 0; --left)
    target.insert(0, "../");
  std::error_code error;
  if (fs::exists(link, error)) return;
  fs::remove(link, error);  // a link to a blob that is gone
  fs::create_symlink(target, link, error);
  if (error) throw io::storage_error(error.value(), "cannot make a link", link.string());
}

}  // namespace

SnapshotState state_of(const std::string& snapshot, const ChooseFiles& choose) {
  const Names names = names_below(snapshot);
  Choice choice;
  try {
    choice = choose(names, [&](const std::string& name) {
      return io::read_file(io::join_path(snapshot, name), kMaxReadBytes);
    });
  } catch (const Error&) {
    return SnapshotState::Lacking;
  }
  const bool has_all = std::all_of(choice.files.begin(), choice.files.end(),
                                   [&](const std::string& name) { return names.contains(name); });
  if (!has_all || !has_all_parts(choice.files)) return SnapshotState::Lacking;
  return choice.is_sure ? SnapshotState::Whole : SnapshotState::Unsure;
}

bool is_revision(const std::string& text) {
  return is_inner_path(text) && text.find(' ') == std::string::npos;
}

std::string make_snapshot(const Repository& repository, const std::string& commit,
                          const std::vector<RemoteFile>& files) {
  const std::string folder = repository.snapshot_folder(commit);
  io::make_directories(folder);
  for (const RemoteFile& file : files) link_file(folder, file);
  if (repository.wanted() != commit) {
    const std::string reference = repository.folder() + "/refs/" + repository.wanted();
    io::make_directories(io::parent_path(reference));
    io::write_file_atomic(reference, commit);
  }
  return folder;
}

}  // namespace tessera::hub
