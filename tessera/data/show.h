// What a recipe's data becomes, for people to read.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "tessera/data/loader.h"
#include "tessera/data/prepare.h"

namespace tessera::data {

struct ShowOptions {
  int64_t num_rows = 3;
  bool color = false;   // trained tokens in colour; else in brackets
  bool tokens = false;  // '|' between tokens
  LoaderOptions train, eval;
};

// Writes the first rows with their trained tokens marked, and the counts: records, rows, tokens, labels, what
// was left out and why, packing efficiency. Warns where a dataset trains no end-of-turn token.
void show_data(std::ostream& out, const PreparedData& data, const text::Tokenizer& tokenizer,
               const ShowOptions& options);

// One row's text. Control bytes come out as escapes, bytes that are not UTF-8 as U+FFFD.
std::string show_row(const Row& row, const text::Tokenizer& tokenizer, const ShowOptions& options);

}  // namespace tessera::data
