// Places of members in the text of a JSON document, for edits that leave every other byte as it is.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string_view>

namespace tessera::text {

// Half-open range of bytes of the text.
struct JsonPlace {
  size_t begin = 0, end = 0;
};

// Returns the place of the value that these keys lead to from the outermost object; nothing if there is none.
// The text must be valid JSON whose outermost value is an object. Only objects are entered.
std::optional<JsonPlace> find_json_value(std::string_view text, std::initializer_list<std::string_view> keys);

}  // namespace tessera::text
