// What a recipe's data becomes, for people to read.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "tessera/data/curriculum_loader.h"
#include "tessera/data/loader.h"
#include "tessera/data/prepare.h"

namespace tessera::data {

struct ShowOptions {
  int64_t num_rows = 3;
  bool color = false;       // trained tokens in colour; else in brackets
  bool tokens = false;      // '|' between tokens
  bool each_token = false;  // a line for each token: place, id, label, text
  LoaderOptions train, eval;
  bool has_epochs = true;  // else nothing is said of the packing and the steps of one
  DrawnRows drawn = {};    // of a curriculum: shown for the first rows
};

// Writes the first rows with their trained tokens marked, and the counts: records, rows, tokens, labels, what
// was left out and why, packing efficiency. Warns, with counts, of ends that are not trained or doubled, of
// rows that were dropped or cut, of control tokens in texts, and of evaluation rows that are training rows.
void show_data(std::ostream& out, const PreparedData& data, const text::Tokenizer& tokenizer,
               const ShowOptions& options);

// The same as one HTML page that needs nothing else: the first sequences of an epoch, or of the
// run where there is none, each with its documents, and for each token its text, place, id, label, dataset
// and document. `title` heads it.
std::string show_data_html(const PreparedData& data, const text::Tokenizer& tokenizer,
                           const ShowOptions& options, const std::string& title);

// One row's text. Control bytes come out as escapes, bytes that are not UTF-8 as U+FFFD.
std::string show_row(const Row& row, const text::Tokenizer& tokenizer, const ShowOptions& options);

}  // namespace tessera::data
