// Which keys a map of a recipe may hold, and what to say of one that it may not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/config/foreign_keys.h"
#include "tessera/config/node.h"

namespace tessera::config {

bool is_native(const Section& section, std::string_view key);

// Of a native key that is a list of maps, the section that its entries are; "" for others.
std::string_view entries_of(std::string_view key);

// The error for a key that no table has. `name` is the entry's key without the section's prefix, `path` the
// key as its writer has it, `other_name` the line of another tool's name for a native key, or null.
Error unknown_key(const Section& section, const Entry& entry, std::string_view name, const std::string& path,
                  const ForeignKey* other_name);

}  // namespace tessera::config
