// The contents of `tessera data show`, before they are laid out as text or as a page.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/data/show.h"

namespace tessera::data {

// Lines of a name and a value, with warnings under them.
struct ShownTable {
  std::string title;
  std::vector<std::pair<std::string, std::string>> lines;
  std::vector<std::string> warnings;
};

// Returns the counts of every dataset, then those of the training and the evaluation rows.
std::vector<ShownTable> describe_data(const PreparedData& data, const ShowOptions& options);

// Returns whether the token at `place` is trained. The label of the first token counts for nothing: no
// position predicts it.
inline bool is_trained(const Row& row, size_t place) {
  return place > 0 && row.labels[place] != kIgnoreLabel;
}

// Returns text that can be printed: line feeds as an arrow and a line feed, other control bytes as escapes,
// and bytes that are not UTF-8 as U+FFFD, or as escapes too with `escape_broken`.
std::string printable(std::string_view bytes, bool escape_broken = false);

// Counts the evaluation rows that are training rows as well, token for token.
int64_t count_shared_rows(const PreparedData& data);

}  // namespace tessera::data
