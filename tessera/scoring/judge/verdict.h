// Finds in a judge's words what it has decided, as FastChat does.
#pragma once

#include <string>
#include <string_view>

#include "tessera/scoring/judge/rows.h"

namespace tessera::scoring::judge {

// Stands in place of a score where a judge has given no rating.
inline constexpr int64_t kNoRating = -1;

// Returns the first number in double brackets ("[[7]]"), else the first one in single brackets, else
// kNoRating. A number with a point is a float, so that it is written as FastChat writes it.
Json find_rating(std::string_view judgment);

// Returns who has won by the judge's words: "A", "B", "tie", or "error" where they do not tell. With the
// `output_format` "[[A]]" the first of [[A]], [[B]] and [[C]] (a tie) counts that occurs at all; with
// "[[rating_a,rating_b]]" the larger of two ratings, which tie up to a distance of 0.1.
std::string find_winner(std::string_view judgment, std::string_view output_format);

}  // namespace tessera::scoring::judge
