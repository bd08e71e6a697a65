// Characters that are newer than the Unicode tables of an older ICU.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tessera::text {

// A range of characters of one general category ("Lu").
struct NewCharacters {
  std::string_view category;
  uint32_t first, last;
};

// Returns the letters, marks, numbers, punctuation and symbols that Unicode 15.1 and 16 added to Unicode 15,
// so that ids do not depend on the age of the ICU at hand. Scripts and other properties are left out.
std::span<const NewCharacters> new_characters();

// Returns the small letter of a capital that Unicode 15.1 to 17 added; returns any other character as it is.
uint32_t new_lowercase(uint32_t code_point);

}  // namespace tessera::text
