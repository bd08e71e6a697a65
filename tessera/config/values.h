// Reads the text of a value, in the spellings of all the tools whose keys are accepted.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/config/node.h"

namespace tessera::config {

// Returns the parts of `text` between any of the separators; empty parts are left out.
std::vector<std::string> split_words(std::string_view text, std::string_view separators);

// Returns the spelling that the tables of foreign_keys.h use: lower case, and "true" or "false" for all
// spellings of a boolean.
std::string canonical(const Node& scalar);

// Returns whether a value switches nothing on: blank, empty, false, none, or one of `off_values` (words).
bool is_off(const Node& node, std::string_view off_values);

// Returns the "ours" of the pair "theirs=ours" in `values` whose "theirs" is `text`, which must be canonical;
// nullopt when there is no such pair. The words "no" and "yes" in the table also stand for the booleans.
std::optional<std::string> look_up(std::string_view values, const std::string& text);

// Returns a list unchanged, and a text as the list of its names, which commas or spaces separate.
Node list_of(const Node& value);

// Reads "beta1=0.9, eps=1e-6" as a map; nullopt for another text and for a value that is no text.
std::optional<Node> assignments_of(const Node& value, const Place& key_place);

}  // namespace tessera::config
