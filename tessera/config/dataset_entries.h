// Expands short forms of `datasets` into entries with the keys that they stand for.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/config/node.h"
#include "tessera/config/problems.h"

namespace tessera::config {

// Keys that a map may hold that is given as a dataset's `type` (a format of the user's own).
std::span<const std::string_view> own_format_keys();

// Returns the one name under which schema.h lists the dataset type that `name` means ("alpaca:instruct" ->
// "alpaca").
std::string dataset_type(const std::string& name);

// Datasets that another tool refers to by name, and the keys that it gives beside the names.
struct NamedDatasets {
  bool is_of_hub = false;                 // names are of the hub; else of LLaMA-Factory's dataset_info.json
  std::string folder = "data";            // folder that holds dataset_info.json
  std::string configuration, split = {};  // "" = not given

  // Returns one entry of `datasets` for each of `names` (a list, or a text with commas). Warns that the type
  // of the rows of a hub dataset is not known.
  Node entries(const Node& names, Problems& problems) const;
};

// Returns `value` (a path, a map or a list of these) as entries of type `pretrain`: documents to concatenate.
Node documents(const Node& value);

// Adds to an entry of `type: sharegpt` the keys that describe the shape of its rows, {conversations: [{from:
// human, value: ...}]}, and warns of that reading.
void apply_sharegpt(Node& dataset, Problems& problems);

}  // namespace tessera::config
