#include "tessera/generation/answer_biases.h"

#include <algorithm>
#include <limits>
#include <string>

#include "tessera/core/error.h"

namespace tessera::generation {

AnswerBiases::AnswerBiases(const BiasOptions& options, const SamplingOptions& sampling,
                           const std::vector<int64_t>& stop_ids, int64_t vocabulary)
    : options_(options),
      stop_ids_(stop_ids),
      presence_(sampling.presence_penalty),
      frequency_(sampling.frequency_penalty) {
  const auto is_token = [vocabulary](int64_t id) { return id >= 0 && id < vocabulary; };
  constexpr double kLargest = 100.0;
  for (const TokenBias& bias : options.logit_bias) {
    if (is_token(bias.id) && bias.delta >= -kLargest && bias.delta <= kLargest) continue;
    throw Error(ErrorKind::Config, "SAMPLING", "bad logit_bias")
        .got(std::to_string(bias.delta) + " for token " + std::to_string(bias.id))
        .need("-100 to 100 for a token below " + std::to_string(vocabulary));
  }
  std::erase_if(stop_ids_, [&](int64_t id) { return !is_token(id); });
  std::erase_if(options_.bad_words, [&](const std::vector<int64_t>& word) {
    return word.empty() || !std::ranges::all_of(word, is_token);
  });
  settle({});
}

void AnswerBiases::take(std::span<const int64_t> answer) {
  if (presence_ != 0.0 || frequency_ != 0.0) {
    const int64_t id = answer.back();
    const auto found = std::ranges::find(after_, id, &TokenBias::id);
    const auto place = static_cast<size_t>(found - after_.begin());
    if (found == after_.end()) {
      after_.push_back({id, 0.0});
      counts_.push_back(0);
    }
    after_[place].delta = -(frequency_ * static_cast<double>(++counts_[place]) + presence_);
  }
  settle(answer);
}

void AnswerBiases::settle(std::span<const int64_t> answer) {
  before_ = options_.logit_bias;
  if (std::ssize(answer) < options_.min_new_tokens)
    std::ranges::for_each(stop_ids_, [this](int64_t id) { bar(id); });
  for (const std::vector<int64_t>& word : options_.bad_words) {
    const std::span beginning = std::span(word).first(word.size() - 1);
    if (beginning.size() <= answer.size() && std::ranges::equal(answer.last(beginning.size()), beginning))
      bar(word.back());
  }
}

void AnswerBiases::bar(int64_t id) {
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  const auto found = std::ranges::find(before_, id, &TokenBias::id);
  if (found == before_.end()) {
    before_.push_back({id, kNever});
  } else {
    found->delta = kNever;
  }
}

}  // namespace tessera::generation
