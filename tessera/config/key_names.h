// Knows which keys a map of a recipe may hold, and words the error for one that it may not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/config/foreign_keys.h"
#include "tessera/config/node.h"

namespace tessera::config {

bool is_native(const Section& section, std::string_view key);

// Returns the section whose keys the entries of `key` have, if `key` is a native list of maps; "" for other
// keys.
std::string_view entries_of(std::string_view key);

// Returns the error for a key that no table has. `name` is the entry's key without the section's prefix,
// `path` the key path as the user wrote it, `other_name` the table line if `name` is another tool's name for
// a native key, else null.
Error unknown_key(const Section& section, const Entry& entry, std::string_view name, const std::string& path,
                  const ForeignKey* other_name);

}  // namespace tessera::config
