// A constraint for the small model, whose tokens are letters: token i is the i-th character from '@' on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/text/constraint/constraint.h"

namespace tessera::generation {

inline char letter_of(int64_t id) { return static_cast<char>('@' + id); }

inline std::shared_ptr<text::Constraint> letters_constraint(const std::string& regex) {
  std::vector<std::string> bytes;
  for (int64_t id = 0; id < 31; ++id) bytes.emplace_back(1, letter_of(id));
  return std::make_shared<text::Constraint>(
      text::ConstraintSource{text::ConstraintSource::Kind::Regex, regex},
      std::make_shared<const text::TokenTrie>(bytes));
}

}  // namespace tessera::generation
