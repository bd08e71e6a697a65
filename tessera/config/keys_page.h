// Makes the page of docs/ that says how each key is treated.
#pragma once

#include <string>

namespace tessera::config {

// Returns the text of docs/recipe-keys.md, from the tables of schema.h and foreign_keys.h.
std::string keys_page();

}  // namespace tessera::config
