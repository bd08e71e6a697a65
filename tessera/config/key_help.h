// What docs/recipes.md says of a native key, for the program's own output.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::config {

// The page, which is compiled in.
const char* recipes_page();

// The meaning of a key of a recipe, or of an entry of datasets, from the page's table: one line of plain
// text;
// "" where it says nothing.
std::string key_help(std::string_view key, bool is_of_dataset = false);

// The names of the keys of a recipe by the headings that the page has them under, in its order.
// Headings without keys are left out.
struct KeyGroup {
  std::string title;
  std::vector<std::string> keys;
};
std::vector<KeyGroup> key_groups();

}  // namespace tessera::config
