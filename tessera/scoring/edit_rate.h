// The translation edit rate, as sacrebleu 2 computes it by default.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace tessera::scoring {

// Returns the edits that make the reference of the answer, and the words of the reference (Snover et al., "A
// Study of Translation Edit Rate with Targeted Human Annotation", 2006). An edit inserts, deletes or replaces
// a word, or shifts a run of words; shifts are searched for with the limits of Tercom. Words are what white
// space separates, in lower case. The texts are valid UTF-8. Counts add up over documents.
std::vector<double> ter_counts(std::string_view answer, std::string_view reference);
// Returns edits for each 100 words of the references; 100 where these have no words and the answers have.
double ter_score(std::span<const double> counts);

}  // namespace tessera::scoring
