// What the text of a value says, in the spellings of all the tools whose keys are read.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/config/node.h"

namespace tessera::config {

// The parts between any of the separators; none is empty.
std::vector<std::string> split_words(std::string_view text, std::string_view separators);

// The spelling that the tables of foreign_keys.h use: lower case, and one form for all of a boolean.
std::string canonical(const Node& scalar);

// Whether a value switches nothing on: blank, empty, false, none, or one of `off_values` (words).
bool is_off(const Node& node, std::string_view off_values);

// Of "theirs=ours ..." what stands for `text`, which is canonical; nothing where it is not named. The words
// no and yes of the table stand for the booleans too.
std::optional<std::string> look_up(std::string_view values, const std::string& text);

// A list as it is, or the names of a text that are separated by commas or spaces.
Node list_of(const Node& value);

// "beta1=0.9, eps=1e-6" as a map. Nothing for another text, or for what is no text.
std::optional<Node> assignments_of(const Node& value, const Place& key_place);

}  // namespace tessera::config
