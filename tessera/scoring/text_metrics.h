// Metrics of generated text beside a reference: BLEU, chrF and chrF++, as sacrebleu 2 computes them by
// default.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace tessera::scoring {

// string.punctuation of Python.
inline constexpr std::string_view kPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

// Both come in two steps: counts of one answer, which add up over documents, and the score of the sums, from
// 0 to 100. The texts are valid UTF-8.

// Returns the matching n-grams of 1 to 4 words, all n-grams of the answer, its words and those of the
// reference; words are those of mteval-v13a (Papineni et al., "BLEU: a Method for Automatic Evaluation of
// Machine Translation", 2002).
std::vector<double> bleu_counts(std::string_view answer, std::string_view reference);
// Zero matches of an order count half as much each time (Chen and Cherry, 2014, method 3).
double bleu_score(std::span<const double> counts);

// Returns, for each order, the n-grams of the answer, those of the reference, and the matches: of 1 to 6
// characters without white space, and for chrF++ of 1 and 2 words besides (Popovic, "chrF", 2015, and
// "chrF++", 2017).
std::vector<double> chrf_counts(std::string_view answer, std::string_view reference, bool has_words);
// The F score with beta = 2 of the mean precision and the mean recall over the orders that both have.
double chrf_score(std::span<const double> counts);

}  // namespace tessera::scoring
