// Has a judge decide matches, and writes what it says.
#pragma once

#include <string>
#include <vector>

#include "tessera/scoring/judge/endpoint.h"
#include "tessera/scoring/judge/match.h"

namespace tessera::scoring::judge {

struct GradeOptions {
  std::string judge;  // by which the rows name it
  int64_t max_tokens = 2048, parallel = 4;
};

struct Graded {
  size_t num_new = 0;        // rows that were made
  size_t num_undecided = 0;  // of these, rows without a rating, or with a game that names no winner
};

// Has the endpoint decide every match that `path` has no row of, in two games with the answers in both orders
// where there are two, at temperature 0, and appends the row when the match is decided. Throws what RowLog,
// ask_each() and Endpoint::chat() throw.
Graded grade(const std::vector<Match>& matches, const EndpointOptions& endpoint, const GradeOptions& options,
             const std::string& path);

}  // namespace tessera::scoring::judge
