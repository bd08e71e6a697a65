#include "tessera/hub/snapshot.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>

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

// Notes the names of a commit's files, one a line.
void note_names(const Repository& repository, const Listing& listing) {
  std::string text;
  for (const auto& [name, ignored] : listing.files) {
    if (!is_inner_path(name)) return;
    text += name + '\n';
  }
  const std::string path = repository.names_file(listing.commit);
  io::make_directories(io::parent_path(path));
  io::write_file_atomic(path, text);
}

std::optional<Names> noted_names(const std::string& path) {
  if (!io::exists(path)) return std::nullopt;
  std::istringstream lines(io::read_file(path, kMaxNamesBytes));
  Names names;
  for (std::string name; std::getline(lines, name);) names.insert(name);
  return names;
}

// Splits "a-00001-of-00004.parquet" into its number and the name that all parts have in common. Some tools
// put a hash of its own behind the count of each part: "a-00001-of-00004-0123456789abcdef.parquet".
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
  std::string_view rest(end, static_cast<size_t>(name.data() + name.size() - end));
  constexpr size_t kHash = 16;
  if (rest.starts_with('-') && rest.find_first_not_of("0123456789abcdef", 1) == 1 + kHash)
    rest.remove_prefix(1 + kHash);
  common = name.substr(0, dash) + std::string(begin, end) + std::string(rest);
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
  std::error_code error, ignored;
  for (int attempt = 0; attempt < 2; ++attempt) {
    fs::create_symlink(target, link, error);
    // Another tool may have made it just now.
    if (!error || fs::exists(link, ignored)) return;
    fs::remove(link, ignored);  // a link to a blob that is gone
  }
  throw io::storage_error(error.value(), "cannot make a link", link.string());
}

}  // namespace

SnapshotState state_of(const Repository& repository, const std::string& snapshot, const ChooseFiles& choose) {
  const Names names = names_below(snapshot);
  std::optional<Names> noted;
  Choice choice;
  bool can_read = true;
  try {
    noted = noted_names(repository.names_file(fs::path(snapshot).filename()));
    choice = choose(noted ? *noted : names, [&](const std::string& name) {
      can_read = names.contains(name);
      return io::read_file(io::join_path(snapshot, name), kMaxReadBytes);
    });
  } catch (const Error&) {
    return can_read ? SnapshotState::Lacking : SnapshotState::Partial;
  }
  const bool has_all = std::all_of(choice.files.begin(), choice.files.end(),
                                   [&](const std::string& name) { return names.contains(name); });
  if (noted) return has_all ? SnapshotState::Whole : SnapshotState::Partial;
  if (!has_all) return SnapshotState::Lacking;
  if (choice.is_sure) return SnapshotState::Whole;
  return has_all_parts(choice.files) ? SnapshotState::Unsure : SnapshotState::Lacking;
}

bool is_revision(const std::string& text) {
  return is_inner_path(text) && text.find(' ') == std::string::npos;
}

std::string make_snapshot(const Repository& repository, const Listing& listing,
                          const std::vector<RemoteFile>& files) {
  const std::string folder = repository.snapshot_folder(listing.commit);
  io::make_directories(folder);
  for (const RemoteFile& file : files) link_file(folder, file);
  note_names(repository, listing);
  if (repository.wanted() != listing.commit) {
    const std::string reference = repository.folder() + "/refs/" + repository.wanted();
    io::make_directories(io::parent_path(reference));
    io::write_file_atomic(reference, listing.commit);
  }
  return folder;
}

}  // namespace tessera::hub
