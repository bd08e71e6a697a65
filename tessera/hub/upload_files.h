// Says which files of a folder are uploaded.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera::hub {

struct LocalFile {
  std::string name;  // in the repository
  std::string path;
  int64_t size = 0;
  std::optional<std::string> text = {};  // what is uploaded in place of the file's contents
};

// Returns the files of a result: those that choose_model() takes of a model or an adapter, a card (README.md)
// and a licence. Checkpoints, logs and recipe.yaml, which names paths of this machine, stay. An adapter's
// config names its base model as on the hub, if this comes from there; else one warning tells. Throws
// E-CONFIG-UPLOAD-FILES for a folder that holds neither model nor adapter, or lacks a file that it names, and
// Storage.
std::vector<LocalFile> files_to_upload(const std::string& folder);

// Returns `count` bytes from the beginning at most. Throws Storage.
std::string first_bytes(const LocalFile& file, int64_t count);

// Returns the SHA-256 of the file, which is read in pieces. Calls `between` before each of them. Throws
// Storage, and what `between` throws.
std::string sha256_of(const LocalFile& file, const std::function<void()>& between);

}  // namespace tessera::hub
