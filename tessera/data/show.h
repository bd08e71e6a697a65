// Shows people what a recipe's data becomes.
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
  bool color = false;       // shows trained tokens in colour; else in brackets
  bool tokens = false;      // writes '|' between tokens
  bool each_token = false;  // writes a line for each token: place, id, label, text
  LoaderOptions train, eval;
  bool has_epochs = true;  // if not, nothing is said of packing and of an epoch's steps
  DrawnRows drawn = {};    // rows drawn by a curriculum; if any, shown in place of the first rows
};

// Writes the first rows with their trained tokens marked, and the counts: records, rows, tokens, labels, what
// was left out and why, packing efficiency. Warns, with counts, of ends that are not trained or doubled, of
// rows that were dropped or cut, of control tokens in texts, and of evaluation rows that are training rows.
void show_data(std::ostream& out, const PreparedData& data, const text::Tokenizer& tokenizer,
               const ShowOptions& options);

// The first bytes of every such page.
inline constexpr const char* kShowPageBegin =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<!-- made by tessera data show -->\n";

// Returns the same as one HTML page that loads nothing else. It shows the first sequences of an epoch, or of
// the run if there are no epochs, each with its documents, and for each token its text, place, id, label,
// dataset and document. `title` heads it.
std::string show_data_html(const PreparedData& data, const text::Tokenizer& tokenizer,
                           const ShowOptions& options, const std::string& title);

// Returns one row's text. Control bytes come out as escapes, bytes that are not UTF-8 as U+FFFD.
std::string show_row(const Row& row, const text::Tokenizer& tokenizer, const ShowOptions& options);

}  // namespace tessera::data
