#include "tessera/serving/bias_fields.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "tessera/text/bad_words.h"

namespace tessera::serving {
namespace {

constexpr size_t kMostBadWords = 1024;

std::vector<std::pair<int64_t, double>> read_logit_bias(Fields& fields, int64_t vocabulary) {
  const std::string name = "logit_bias";
  const Json* value = fields.find(name);
  // Some clients write an object without members as an array.
  if (value == nullptr || (value->is_array() && value->empty())) return {};
  const ApiError problem =
      fields.problem(name, "an object is needed with numbers from -100 to 100 for token ids from 0 to " +
                               std::to_string(vocabulary - 1));
  if (!value->is_object()) throw problem;
  std::vector<std::pair<int64_t, double>> biases;
  for (const auto& entry : value->items()) {
    const std::string& key = entry.key();
    const bool is_plain = !key.empty() && key.size() < 19 && (key.size() == 1 || key[0] != '0');
    int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (!is_plain || error != std::errc() || end != key.data() + key.size() || id < 0 || id >= vocabulary)
      throw problem;
    const Json& bias = entry.value();
    if (!bias.is_number() || !(bias.get<double>() >= -100.0 && bias.get<double>() <= 100.0)) throw problem;
    biases.emplace_back(id, bias.get<double>());
  }
  return biases;
}

// Returns the tokens of each word as they stand at the beginning of a text, and behind a space where that is
// as many other tokens.
std::vector<std::vector<int64_t>> read_bad_words(Fields& fields, const ServedModel& model) {
  const std::string name = "bad_words";
  const Json* value = fields.find(name);
  if (value == nullptr) return {};
  if (!value->is_array() || value->size() > kMostBadWords)
    throw fields.problem(name, "an array of at most " + std::to_string(kMostBadWords) + " texts is needed");
  std::vector<std::vector<int64_t>> words;
  for (const Json& each : *value) {
    const auto own =
        text::tokens_of_bad_word(model.tokenizer, each.is_string() ? each.get<std::string>() : "");
    if (own.empty())
      throw fields.problem(name, "texts are needed, none of them empty or of white space alone");
    words.insert(words.end(), own.begin(), own.end());
  }
  return words;
}

}  // namespace

void read_biases(Fields& fields, const ServedModel& model, int64_t vocabulary, Sampling& sampling) {
  sampling.presence_penalty = fields.number("presence_penalty", -2.0, 2.0).value_or(0.0);
  sampling.frequency_penalty = fields.number("frequency_penalty", -2.0, 2.0).value_or(0.0);
  sampling.logit_bias = read_logit_bias(fields, vocabulary);
  sampling.min_new_tokens = fields.integer("min_tokens", 0, INT32_MAX).value_or(0);
  sampling.bad_words = read_bad_words(fields, model);
}

}  // namespace tessera::serving
