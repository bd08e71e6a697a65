// Reads what a dataset of the hub says of its files, in the head of its README.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/config/data_config.h"

namespace tessera::config {

// The files of one split, as patterns of names; `split` is empty where the card names none.
struct CardFiles {
  std::string split;
  std::vector<std::string> patterns;
};

// Returns the files of the entry's configuration (`name`, or the default one). Returns nothing if the card
// lists no configurations, or no files of this one. `path` names the card in a warning. Throws Error(Config)
// at the entry for a name that the card does not have, or if it has several configurations and no default.
std::optional<std::vector<CardFiles>> files_of_card(const DatasetConfig& dataset, const std::string& text,
                                                    const std::string& path);

}  // namespace tessera::config
