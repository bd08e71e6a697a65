// Errors about one key of a recipe, or one entry of `datasets:` or `test_datasets:`.
#pragma once

#include <string>
#include <string_view>

#include "tessera/config/data_config.h"
#include "tessera/core/error.h"

namespace tessera::config {

struct KeyPlaces;

// Makes an Error(Config) about the key, at its place: "key '<key>': <what>".
Error key_error(const KeyPlaces& places, std::string_view name, const std::string& key,
                const std::string& what);
// Makes an Error(Config) at the entry.
Error entry_error(const DatasetConfig& dataset, std::string_view name, const std::string& what);

}  // namespace tessera::config
