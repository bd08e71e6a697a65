// Values of task files: the types that PyYAML gives them, and checks that name their place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/config/node.h"
#include "tessera/scoring/task_config.h"

namespace tessera::scoring {

// Returns a value as PyYAML reads it: yes, no, on and off are booleans, and a number with an exponent needs a
// point. A value with a tag is refused.
Json json_of(const config::Node& node);

// Return the value of a key of the wanted type. Throw Error(Config) at the value.
std::string text_of(const config::Entry& entry);
int64_t integer_of(const config::Entry& entry);
double number_of(const config::Entry& entry);
bool boolean_of(const config::Entry& entry);
// Returns one text or a list of them.
std::vector<std::string> texts_of(const config::Entry& entry);

// Makes the error for a value of the wrong type.
Error wrong_value(const config::Entry& entry, const std::string& need);
// Throws for a key of the map that is not among `known`.
void refuse_unknown(const config::Node& map, const std::vector<std::string>& known, const std::string& what);

}  // namespace tessera::scoring
