// Datasets and models that Hugging Face's tools have downloaded before.
#pragma once

#include <optional>
#include <string>

namespace tessera::config {

enum class HubKind { Model, Dataset };

// Whether `path` can be a name on the hub: "org/name" or "name", of letters, digits, '-', '_' and '.'.
bool is_hub_id(const std::string& path);

// The folder of the cache: HF_HUB_CACHE, or hub/ in HF_HOME, or in ~/.cache/huggingface.
std::string hub_cache_folder();

// The folder with the files of `id` at `revision` (a branch, a tag or a commit; "" = main) in the cache.
// Nothing where it is not there.
std::optional<std::string> find_in_hub_cache(HubKind kind, const std::string& id,
                                             const std::string& revision);

// The command that puts it there.
std::string download_command(HubKind kind, const std::string& id, const std::string& revision);

}  // namespace tessera::config
