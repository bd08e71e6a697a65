// Fields that several steps of tokenizer.json have.
#pragma once

#include <string>

#include "tessera/text/tokenizer/json_field.h"
#include "tessera/text/tokenizer/pre_tokenizer.h"

namespace tessera::text {

// The pattern of a Split or Replace: {"String": "..."} or {"Regex": "..."}.
struct StepPattern {
  std::string text;
  bool is_regex = false;
  std::string place;
};
StepPattern read_pattern(const JsonField& field);

// Returns a text of limited length: a search takes as long as its pattern, and a replacement is put in often.
const std::string& read_literal(const JsonField& field);
// Returns a text of one character.
const std::string& read_character(const JsonField& field);
SplitBehavior read_behavior(const JsonField& field);

struct MetaspaceFields {
  std::string replacement;
  PrependScheme scheme = PrependScheme::Always;
  bool split = true;
};
// Reads a Metaspace of the pre-tokenizer or the decoder. Older files have `add_prefix_space` and `str_rep`.
MetaspaceFields read_metaspace(const JsonField& field);

}  // namespace tessera::text
