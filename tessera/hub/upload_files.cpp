#include "tessera/hub/upload_files.h"

#include <algorithm>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/sha256.h"
#include "tessera/hub/cache.h"
#include "tessera/hub/choose_files.h"
#include "tessera/io/file.h"

namespace tessera::hub {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPieceBytes = int64_t{4} << 20;

// Files for people, which no program needs.
constexpr const char* kBesideFiles[] = {"README.md", "LICENSE",   "LICENSE.md", "LICENSE.txt",
                                        "NOTICE",    "NOTICE.md", "NOTICE.txt"};

// Returns the names of the files in the folder, and of the chat templates in the one below it.
Names names_in(const std::string& folder) {
  Names names;
  for (const std::string inner : {"", "additional_chat_templates/"}) {
    std::error_code failed, ignored;
    fs::directory_iterator entry(io::join_path(folder, inner), failed);
    for (const fs::directory_iterator end; !failed && entry != end; entry.increment(failed)) {
      if (entry->is_regular_file(ignored)) names.insert(inner + entry->path().filename().string());
    }
    if (failed && inner.empty()) throw io::storage_error(failed.value(), "cannot list the folder", folder);
  }
  return names;
}

// Lets the config of an adapter name its base model so that other machines find it.
void settle_base_model(LocalFile& file) {
  constexpr const char* kKey = "base_model_name_or_path";
  auto config = nlohmann::ordered_json::parse(io::read_file(file.path, kMaxReadBytes), nullptr, false);
  const auto base = config.is_object() ? config.find(kKey) : config.end();
  if (base == config.end() || !base->is_string()) return;
  const std::string path = base->get<std::string>(), name = model_of_snapshot(path);
  if (!name.empty()) {
    *base = name;
    file.text = config.dump(2) + "\n";
    file.size = std::ssize(*file.text);
  } else if (path.starts_with('/')) {
    log::warn(file.path + " names a folder of this machine as " + kKey + ": " + path +
              "; other machines need the name of the model on the hub");
  }
}

Error no_result_error(const std::string& what) { return Error(ErrorKind::Config, "UPLOAD-FILES", what); }

}  // namespace

std::vector<LocalFile> files_to_upload(const std::string& folder) {
  const Names names = names_in(folder);
  if (!names.contains("config.json") && !names.contains("adapter_config.json")) {
    Error error = no_result_error(folder + " contains neither a model nor an adapter");
    error.need("config.json or adapter_config.json next to the weights");
    if (names.contains("manifest.json"))
      error.hint("this is a checkpoint: tessera convert turns it into a model folder");
    throw error;
  }
  std::vector<std::string> chosen;
  try {
    chosen = choose_model(names, [&](const std::string& name) {
               return io::read_file(io::join_path(folder, name), kMaxReadBytes);
             }).files;
  } catch (Error& error) {
    error.within("cannot upload " + folder);
    throw;
  }
  for (const char* name : kBesideFiles) {
    if (names.contains(name)) chosen.emplace_back(name);
  }
  std::vector<LocalFile> files;
  for (const std::string& name : chosen) {
    if (!names.contains(name)) throw no_result_error(folder + " lacks a file that its index names").got(name);
    const std::string path = io::join_path(folder, name);
    files.push_back({name, path, io::File::open(path).size()});
    if (name == "adapter_config.json") settle_base_model(files.back());
  }
  return files;
}

std::string first_bytes(const LocalFile& file, int64_t count) {
  if (file.text) return file.text->substr(0, static_cast<size_t>(count));
  const io::File opened = io::File::open(file.path);
  std::string bytes(static_cast<size_t>(std::min(count, opened.size())), '\0');
  opened.read_at(0, bytes.data(), std::ssize(bytes));
  return bytes;
}

std::string sha256_of(const LocalFile& file, const std::function<void()>& between) {
  const io::File opened = io::File::open(file.path);
  std::string piece(static_cast<size_t>(std::min(kPieceBytes, file.size)), '\0');
  Sha256 hash;
  for (int64_t done = 0; done < file.size;) {
    between();
    const int64_t count = std::min(std::ssize(piece), file.size - done);
    opened.read_at(done, piece.data(), count);
    hash.add({piece.data(), static_cast<size_t>(count)});
    done += count;
  }
  return hash.hex();
}

}  // namespace tessera::hub
