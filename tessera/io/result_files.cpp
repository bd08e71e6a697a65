#include "tessera/io/result_files.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

#include "tessera/io/disk_calls.h"
#include "tessera/io/file.h"

namespace tessera::io {
namespace {

namespace fs = std::filesystem;

// Returns whether `name` matches `pattern`, in which '#' stands for one or more digits, and a '*' at the
// start for any text that is not empty.
bool matches(std::string_view name, std::string_view pattern) {
  if (pattern.starts_with('*')) {
    pattern.remove_prefix(1);
    return name.size() > pattern.size() && name.ends_with(pattern);
  }
  while (!pattern.empty()) {
    if (pattern.front() == '#') {
      const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
      if (digits == 0) return false;
      name.remove_prefix(digits);
    } else {
      if (name.empty() || name.front() != pattern.front()) return false;
      name.remove_prefix(1);
    }
    pattern.remove_prefix(1);
  }
  return name.empty();
}

// The names that a folder of a result may hold: files, and folders with contents of their own.
struct Contents {
  struct Folder {
    std::string_view name;
    const Contents* contents;
  };
  std::vector<std::string_view> files;
  std::vector<Folder> folders;
};

constexpr std::string_view kEvents = "events.out.tfevents.#.#";
const Contents kRuns = {{kEvents}, {}};
const Contents kWandbRun = {{"run-#.wandb"}, {}};
const Contents kWandb = {{}, {{"offline-run-#_#-#", &kWandbRun}}};
const Contents kOtel = {{"metrics.jsonl"}, {}};
const Contents kTemplates = {{"*.jinja"}, {}};
const Contents kCheckpoint = {
    {"manifest.json", "rank-#.safetensors", "metrics.jsonl", "samples.jsonl", "events", "wandb-#", "otel"},
    {}};
const Contents kOlder = {
    {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "model-#-of-#.safetensors",
        "model.safetensors.index.json",
        "adapter_config.json",
        "adapter_model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "tokenizer.model",
        "spiece.model",
        "sentencepiece.bpe.model",
        "tekken.json",
        "*.tiktoken",
        "vocab.json",
        "merges.txt",
        "vocab.txt",
        "chat_template.jinja",
        "chat_template.json",
        "metrics.jsonl",
        "samples.jsonl",
        "recipe.yaml",
    },
    {{"additional_chat_templates", &kTemplates}, {"runs", &kRuns}, {"wandb", &kWandb}, {"otel", &kOtel}}};
// A result with the checkpoints of its run, and with the older one that it will replace.
const Contents kResult = [] {
  Contents contents = kOlder;
  for (const char* name : {"latest", "latest.tessera-stays"}) contents.files.emplace_back(name);
  for (const char* name : {"checkpoint-#", "checkpoint-#.tessera-partial", "checkpoint-#.tessera-old",
                           "checkpoint-#.tessera-stays"}) {
    contents.folders.push_back({name, &kCheckpoint});
  }
  contents.folders.push_back({kOlderResult, &kOlder});
  return contents;
}();

bool is_known_file(const Contents& contents, std::string_view name) {
  // A killed run may have left the file as a temporary of AtomicFile.
  if (const size_t at = name.rfind(".tmp.");
      at != std::string_view::npos && matches(name.substr(at), ".tmp.#-#"))
    name = name.substr(0, at);
  return std::ranges::any_of(contents.files,
                             [&](std::string_view pattern) { return matches(name, pattern); });
}

const Contents* find_folder(const Contents& contents, std::string_view name) {
  for (const Contents::Folder& folder : contents.folders) {
    if (matches(name, folder.name)) return folder.contents;
  }
  return nullptr;
}

// An entry of a folder. A link is neither a folder nor a file here.
struct Entry {
  std::string name;
  bool is_folder = false, is_file = false;
};

std::vector<Entry> list(const std::string& folder) {
  std::vector<Entry> entries;
  std::error_code failed;
  fs::directory_iterator entry(folder, failed);
  for (const fs::directory_iterator end; !failed && entry != end; entry.increment(failed)) {
    std::error_code ignored;
    const fs::file_status status = entry->symlink_status(ignored);
    entries.push_back({entry->path().filename(), fs::is_directory(status), fs::is_regular_file(status)});
  }
  if (failed) throw storage_error(failed.value(), "cannot list the folder", folder);
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

void sync_file(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) throw storage_error(errno, "cannot open", path);
  const int failed = disk::flush(descriptor, path) != 0 ? errno : 0;
  ::close(descriptor);
  if (failed != 0) throw storage_error(failed, "cannot flush to disk", path);
}

void add_foreign(const std::string& folder, const Contents& contents, const std::string& prefix,
                 std::vector<std::string>& foreign) {
  for (const Entry& entry : list(folder)) {
    const Contents* inner = entry.is_folder ? find_folder(contents, entry.name) : nullptr;
    if (inner != nullptr) {
      add_foreign(join_path(folder, entry.name), *inner, prefix + entry.name + "/", foreign);
    } else if (!entry.is_file || !is_known_file(contents, entry.name)) {
      foreign.push_back(prefix + entry.name);
    }
  }
}

// Removes the known contents of the folder except for the names `kept`, and then the folder, if it is empty.
// Returns whether the folder is gone.
bool remove_contents(const std::string& folder, const Contents& contents,
                     const std::vector<std::string>& kept) {
  bool is_empty = true;
  for (const Entry& entry : list(folder)) {
    const std::string path = join_path(folder, entry.name);
    const Contents* inner = entry.is_folder ? find_folder(contents, entry.name) : nullptr;
    if (std::ranges::find(kept, entry.name) != kept.end()) {
      is_empty = false;
    } else if (inner != nullptr) {
      is_empty = remove_contents(path, *inner, {}) && is_empty;
    } else if (entry.is_file && is_known_file(contents, entry.name)) {
      remove_file(path);
    } else {
      is_empty = false;
    }
  }
  if (is_empty && disk::remove_folder(folder) != 0) throw storage_error(errno, "cannot remove", folder);
  return is_empty;
}

}  // namespace

std::vector<std::string> foreign_files(const std::string& folder) {
  std::vector<std::string> foreign;
  add_foreign(folder, kResult, "", foreign);
  return foreign;
}

bool remove_result(const std::string& folder, const std::vector<std::string>& kept) {
  return remove_contents(folder, kResult, kept);
}

bool remove_checkpoint_files(const std::string& folder) { return remove_contents(folder, kCheckpoint, {}); }

bool set_result_aside(const std::string& folder) {
  const std::string aside = join_path(folder, kOlderResult);
  bool has_moved = false;
  for (const Entry& entry : list(folder)) {
    const bool is_of_result = entry.is_folder ? find_folder(kOlder, entry.name) != nullptr
                                              : entry.is_file && is_known_file(kOlder, entry.name);
    if (!is_of_result) continue;
    make_directories(aside);
    if (disk::rename(join_path(folder, entry.name), join_path(aside, entry.name)) != 0)
      throw storage_error(errno, "cannot set aside", join_path(folder, entry.name));
    has_moved = true;
  }
  return has_moved;
}

void sync_tree(const std::string& folder) {
  for (const Entry& entry : list(folder)) {
    const std::string path = join_path(folder, entry.name);
    if (entry.is_folder) sync_tree(path);
    if (entry.is_file) sync_file(path);
  }
  sync_directory(folder);
}

}  // namespace tessera::io
