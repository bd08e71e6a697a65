// Finds datasets and models that Hugging Face's tools have downloaded before.
#pragma once

#include <optional>
#include <string>

namespace tessera::config {

enum class HubKind { Model, Dataset };

// Returns whether `path` can be a name on the hub: "org/name" or "name", of letters, digits, '-', '_' and
// '.'.
bool is_hub_id(const std::string& path);

// Returns the folder of the cache: HF_HUB_CACHE, else hub/ in HF_HOME, else ~/.cache/huggingface/hub.
std::string hub_cache_folder();

// Returns the folder in the cache with the files of `id` at `revision` (a branch, a tag or a commit; "" =
// main, or the only snapshot if there is one), or nullopt when the cache does not hold it.
std::optional<std::string> find_in_hub_cache(HubKind kind, const std::string& id,
                                             const std::string& revision);

// Returns the shell command that downloads `id` into the cache.
std::string download_command(HubKind kind, const std::string& id, const std::string& revision);

}  // namespace tessera::config
