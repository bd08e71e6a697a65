// Gives the text of docs/recipes.md about a native key, for the program's own output.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::config {

// Returns the text of docs/recipes.md, which is compiled in.
const char* recipes_page();

// Returns the meaning of a key of a recipe (or of an entry of `datasets`, if `is_of_dataset`) from the page's
// table, as one line of plain text; "" when the page has no line for the key.
std::string key_help(std::string_view key, bool is_of_dataset = false);

// The keys of a recipe that stand under one heading of the page.
struct KeyGroup {
  std::string title;
  std::vector<std::string> keys;
};
// Returns the groups in the page's order; headings without keys are left out.
std::vector<KeyGroup> key_groups();

}  // namespace tessera::config
