#include "tessera/scoring/text_metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <unordered_map>

#include "tessera/core/utf8.h"
#include "tessera/text/chat_template/text.h"
#include "tessera/text/python_regex.h"

namespace tessera::scoring {
namespace {

constexpr size_t kBleuOrder = 4, kCharOrder = 6, kWordOrder = 2;

using Units = std::vector<std::string>;  // words or characters
using Counts = std::unordered_map<std::string, double>;

// Returns text.split().
Units words_of(std::string_view text) {
  Units words;
  for (const auto& word : text::jinja::split(text::jinja::Text(text), std::nullopt, -1, false))
    words.push_back(word.bytes);
  return words;
}

Units characters_of(std::string_view text) {
  Units characters;
  for (const std::string& word : words_of(text)) {
    for (size_t at = 0; at < word.size();) {
      const size_t size = std::max<size_t>(1, static_cast<size_t>(decode_char(word.data(), at).size));
      characters.push_back(word.substr(at, size));
      at += size;
    }
  }
  return characters;
}

Counts n_grams(const Units& units, size_t order) {
  Counts counts;
  for (size_t i = 0; i + order <= units.size(); ++i) {
    std::string gram;
    for (size_t k = 0; k < order; ++k) gram.append(units[i + k]).push_back('\x1f');
    counts[gram] += 1.0;
  }
  return counts;
}

double total(const Counts& counts) {
  double sum = 0.0;
  for (const auto& entry : counts) sum += entry.second;
  return sum;
}

double matches(const Counts& answer, const Counts& reference) {
  double sum = 0.0;
  for (const auto& [gram, count] : answer) {
    const auto found = reference.find(gram);
    if (found != reference.end()) sum += std::min(count, found->second);
  }
  return sum;
}

// Returns the words of mteval-v13a.
Units bleu_words(std::string_view text) {
  static const std::array<std::pair<text::PythonRegex, const char*>, 4> kSteps = {{
      {text::PythonRegex(R"(([\{-\~\[-\` -\&\(-\+\:-\@\/]))", "bleu"), R"( \1 )"},
      {text::PythonRegex(R"(([^0-9])([\.,]))", "bleu"), R"(\1 \2 )"},
      {text::PythonRegex(R"(([\.,])([^0-9]))", "bleu"), R"( \1 \2)"},
      {text::PythonRegex(R"(([0-9])(-))", "bleu"), R"(\1 \2 )"},
  }};
  text::jinja::Text stripped = text::jinja::strip(text::jinja::Text(text), std::nullopt, false, true);
  for (const auto& [from, to] : {std::pair("<skipped>", ""),
                                 {"-\n", ""},
                                 {"\n", " "},
                                 {"&quot;", "\""},
                                 {"&amp;", "&"},
                                 {"&lt;", "<"},
                                 {"&gt;", ">"}})
    stripped = text::jinja::replace(stripped, from, text::jinja::Text(to), -1);
  std::string line = " " + stripped.bytes + " ";
  for (const auto& [pattern, replacement] : kSteps) line = pattern.replace(line, replacement);
  return words_of(line);
}

bool is_punctuation(char c) { return kPunctuation.find(c) != std::string_view::npos; }

// Returns the words of a text with a mark of punctuation at one end of each cut off.
Units chrf_words(std::string_view text) {
  Units words;
  for (const std::string& word : words_of(text)) {
    if (text::jinja::length_of(word) == 1) {
      words.push_back(word);
    } else if (is_punctuation(word.back())) {
      words.insert(words.end(), {word.substr(0, word.size() - 1), word.substr(word.size() - 1)});
    } else if (is_punctuation(word.front())) {
      words.insert(words.end(), {word.substr(0, 1), word.substr(1)});
    } else {
      words.push_back(word);
    }
  }
  return words;
}

void add_chrf(const Units& answer, const Units& reference, size_t orders, std::vector<double>& counts) {
  for (size_t order = 1; order <= orders; ++order) {
    const Counts own = n_grams(answer, order), wanted = n_grams(reference, order);
    counts.insert(counts.end(), {wanted.empty() ? 0.0 : total(own), total(wanted), matches(own, wanted)});
  }
}

}  // namespace

std::vector<double> bleu_counts(std::string_view answer, std::string_view reference) {
  const Units own = bleu_words(answer), wanted = bleu_words(reference);
  std::vector<double> counts(2 * kBleuOrder);
  for (size_t order = 1; order <= kBleuOrder; ++order) {
    const Counts grams = n_grams(own, order);
    counts[order - 1] = matches(grams, n_grams(wanted, order));
    counts[kBleuOrder + order - 1] = total(grams);
  }
  counts.push_back(static_cast<double>(own.size()));
  counts.push_back(static_cast<double>(wanted.size()));
  return counts;
}

double bleu_score(std::span<const double> counts) {
  const auto matching = counts.first(kBleuOrder), all = counts.subspan(kBleuOrder, kBleuOrder);
  const double own = counts[2 * kBleuOrder], wanted = counts[2 * kBleuOrder + 1];
  if (std::ranges::all_of(matching, [](double count) { return count == 0.0; })) return 0.0;
  double logarithms = 0.0, smoothing = 1.0;
  for (size_t i = 0; i < kBleuOrder; ++i) {
    // An answer without n-grams of an order has a precision of 0.
    if (all[i] == 0.0) return 0.0;
    double precision = matching[i] / all[i];
    if (matching[i] == 0.0) precision = 1.0 / ((smoothing *= 2.0) * all[i]);
    logarithms += std::log(100.0 * precision);
  }
  const double brevity = own < wanted ? std::exp(1.0 - wanted / own) : 1.0;
  return brevity * std::exp(logarithms / static_cast<double>(kBleuOrder));
}

std::vector<double> chrf_counts(std::string_view answer, std::string_view reference, bool has_words) {
  std::vector<double> counts;
  add_chrf(characters_of(answer), characters_of(reference), kCharOrder, counts);
  if (has_words) add_chrf(chrf_words(answer), chrf_words(reference), kWordOrder, counts);
  return counts;
}

double chrf_score(std::span<const double> counts) {
  constexpr double kFactor = 4.0;  // beta squared
  double precision = 0.0, recall = 0.0, orders = 0.0;
  for (size_t i = 0; i + 2 < counts.size(); i += 3) {
    if (counts[i] == 0.0 || counts[i + 1] == 0.0) continue;
    precision += counts[i + 2] / counts[i];
    recall += counts[i + 2] / counts[i + 1];
    orders += 1.0;
  }
  if (precision + recall == 0.0) return 0.0;
  precision /= orders;
  recall /= orders;
  return 100.0 * (1.0 + kFactor) * precision * recall / (kFactor * precision + recall);
}

}  // namespace tessera::scoring
