// Short forms of `datasets`, as entries with the keys that they stand for.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/config/node.h"
#include "tessera/config/problems.h"

namespace tessera::config {

// Keys of a map that stands for `type`: a format of one's own.
std::span<const std::string_view> own_format_keys();

// Names that mean the same type lead to one.
std::string dataset_type(const std::string& name);

// Datasets that other tools have by name, and what they say of them beside the names.
struct NamedDatasets {
  bool is_of_hub = false;                 // else of LLaMA-Factory's dataset_info.json
  std::string folder = "data";            // of that file
  std::string configuration, split = {};  // "" = not given

  // The entries that the names (a list, or a text with commas) stand for. The type of rows of the hub is not
  // known, which is warned of.
  Node entries(const Node& names, Problems& problems) const;
};

// The entries that a path, a map or a list of these stands for: documents to concatenate.
Node documents(const Node& value);

// Adds what `type: sharegpt` says of the shape of its rows, {conversations: [{from: human, value: ...}]}, and
// warns of it.
void apply_sharegpt(Node& dataset, Problems& problems);

}  // namespace tessera::config
