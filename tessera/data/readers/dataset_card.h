// Reads what a folder of the hub says of its files, in the head of its README.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/config/data_config.h"

namespace tessera::data {

// Returns patterns, relative to `folder`, of the files of the entry's split in its configuration (`name`, or
// the default one). Returns nothing if the card lists no configurations, or no files of this one. Throws
// Error(Config) at the entry for a name or split that the card does not have, or if it has several
// configurations and no default.
std::optional<std::vector<std::string>> files_of_card(const config::DatasetConfig& dataset,
                                                      const std::string& folder);

}  // namespace tessera::data
