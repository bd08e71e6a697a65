// What `tessera data show` tells, before it is laid out as text or as a page.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/data/show.h"

namespace tessera::data {

// Names and values, with warnings under them.
struct ShownTable {
  std::string title;
  std::vector<std::pair<std::string, std::string>> lines;
  std::vector<std::string> warnings;
};

// Counts of every dataset, then of the training and the evaluation rows.
std::vector<ShownTable> describe_data(const PreparedData& data, const ShowOptions& options);

// The label of the first token counts for nothing: no position predicts it.
inline bool is_trained(const Row& row, size_t place) {
  return place > 0 && row.labels[place] != kIgnoreLabel;
}

// Text as it can be printed: line feeds as an arrow and a line feed, other control bytes as escapes, and
// bytes that are not UTF-8 as U+FFFD, or as escapes too.
std::string printable(std::string_view bytes, bool escape_broken = false);

// Evaluation rows that are training rows as well, token for token.
int64_t count_shared_rows(const PreparedData& data);

}  // namespace tessera::data
