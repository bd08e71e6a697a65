// Brings repositories of the hub into the cache of Hugging Face's tools.
#pragma once

#include <optional>
#include <string>

#include "tessera/hub/cache.h"
#include "tessera/hub/choose_files.h"
#include "tessera/hub/settings.h"

namespace tessera::hub {

// Returns the folder in the cache with the files of the repository that `choose` takes. No request is made
// where the cache has them, nor where is_offline() holds. Else they are downloaded: by one process at a time,
// while others that want the same repository wait for it. One line tells what is fetched, from any rank. A
// download that is interrupted leaves no snapshot, and the next one goes on from there.
//
// Throws E-CONFIG-HUB-OFFLINE where nothing may be fetched and the cache lacks the repository, -HUB-ACCESS,
// -HUB-NOT-FOUND, -HUB-REFUSED and -HUB-FILES where the hub has not what is wanted,
// E-STORAGE-HUB-UNREACHABLE, -HUB-BROKEN, -HUB-ANSWER and -HUB-CHECK where it does not come, and Storage of
// the disk.
std::string fetch(const Repository& repository, const ChooseFiles& choose, const Limits& limits = {});

// A name that is not a path: "org/name" stands for a repository, "org/name:file.gguf" for one file of it.
struct Name {
  std::string id, file;
};
// Returns what `path` can name on the hub; nothing for a path that no name of the hub has, or that ends as a
// file of weights does. A name without its
// owner ("gpt2") is looked for in the cache alone, since a folder that is not there looks the same.
std::optional<Name> parse_name(const std::string& path);

// Returns whether `path` is such a name, with its owner: one that fetch_model() asks the hub for.
bool is_fetchable(const std::string& path);

// Says for which of its files a model's repository is wanted.
enum class Want { Model, Adapter, Tokenizer };
// Returns the folder, or the GGUF file, that `path` names, or nothing if it is no name of the hub. Throws
// what fetch() throws.
std::optional<std::string> fetch_model(const std::string& path, const std::string& revision, Want want);

}  // namespace tessera::hub
