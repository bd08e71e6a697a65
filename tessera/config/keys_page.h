// The page of docs/ that tells of every key what becomes of it.
#pragma once

#include <string>

namespace tessera::config {

// docs/recipe-keys.md, from the tables of schema.h and foreign_keys.h.
std::string keys_page();

}  // namespace tessera::config
