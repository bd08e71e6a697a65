#include "tessera/data/prompts/chat_labels.h"

#include <algorithm>

#include "tessera/data/batch.h"

namespace tessera::data {
namespace {

// Returns the index of the first token that begins at or after `byte`. Tokens tile the text in order.
int64_t first_token_at(const text::Encoding& encoded, int64_t byte) {
  const auto found = std::partition_point(encoded.spans.begin(), encoded.spans.end(),
                                          [&](const text::ByteSpan& span) { return span.begin < byte; });
  return found - encoded.spans.begin();
}

// Returns the index of the first token that ends behind `byte`, which is the one that the text at `byte` is
// in.
int64_t first_token_into(const text::Encoding& encoded, int64_t byte) {
  const auto found = std::partition_point(encoded.spans.begin(), encoded.spans.end(),
                                          [&](const text::ByteSpan& span) { return span.end <= byte; });
  return found - encoded.spans.begin();
}

}  // namespace

int64_t find_end_token(const text::Encoding& encoded, const text::ByteSpan& closing,
                       const std::vector<int32_t>& end_tokens) {
  const auto size = static_cast<int64_t>(encoded.ids.size());
  for (int64_t i = first_token_at(encoded, closing.begin); i < size && encoded.spans[i].end <= closing.end;
       ++i) {
    if (std::find(end_tokens.begin(), end_tokens.end(), encoded.ids[i]) != end_tokens.end()) return i;
  }
  return -1;
}

std::vector<int32_t> label_chat(const text::Encoding& encoded, const std::vector<TurnSpans>& turns,
                                const std::vector<bool>& train, const EndRules& rules,
                                const std::vector<int32_t>& end_tokens, int32_t eos, bool eos_is_eot) {
  const auto ignore = static_cast<int32_t>(kIgnoreLabel);
  const auto size = static_cast<int64_t>(encoded.ids.size());
  std::vector<int32_t> labels(encoded.ids.size(), ignore);
  const auto for_tokens_in = [&](const text::ByteSpan& range, bool trained) {
    for (int64_t i = first_token_into(encoded, range.begin); i < size && encoded.spans[i].begin < range.end;
         ++i)
      labels[i] = trained ? encoded.ids[i] : ignore;
  };
  for (size_t turn = 0; turn < turns.size(); ++turn) {
    if (!train[turn]) continue;
    for (const text::ByteSpan& range : turns[turn].ranges) for_tokens_in(range, true);
    for (const text::ByteSpan& range : turns[turn].masked) for_tokens_in(range, false);
  }
  const auto trains = [](EndRule rule, bool is_trained_turn) {
    return rule == EndRule::All || (rule == EndRule::Turn && is_trained_turn);
  };
  int64_t last_eos = -1, last_eot = -1;
  for (size_t turn = 0; turn < turns.size(); ++turn) {
    if (turns[turn].ranges.empty() && turns[turn].masked.empty()) continue;
    const int64_t at = find_end_token(encoded, turns[turn].closing, end_tokens);
    if (at < 0) continue;
    const bool is_eos = encoded.ids[at] == eos, is_eot = !is_eos || eos_is_eot;
    const bool trained =
        (is_eos && trains(rules.eos, train[turn])) || (is_eot && trains(rules.eot, train[turn]));
    labels[at] = trained ? encoded.ids[at] : ignore;
    if (train[turn] && is_eos) last_eos = at;
    if (train[turn] && is_eot) last_eot = at;
  }
  if (rules.eos == EndRule::Last && last_eos >= 0) labels[last_eos] = encoded.ids[last_eos];
  if (rules.eot == EndRule::Last && last_eot >= 0) labels[last_eot] = encoded.ids[last_eot];
  return labels;
}

std::vector<int32_t> label_from(const text::Encoding& encoded, int64_t begin, const TurnSpans& last,
                                const std::vector<int32_t>& end_tokens) {
  std::vector<int32_t> labels(encoded.ids.size(), static_cast<int32_t>(kIgnoreLabel));
  const int64_t end_token = find_end_token(encoded, last.closing, end_tokens);
  const int64_t end = end_token >= 0 ? end_token + 1 : static_cast<int64_t>(labels.size());
  for (int64_t i = first_token_into(encoded, begin); i < end; ++i) labels[i] = encoded.ids[i];
  return labels;
}

bool reaches_over(const text::Encoding& encoded, const std::vector<int64_t>& bytes) {
  return std::ranges::any_of(bytes, [&](int64_t byte) {
    const int64_t i = first_token_into(encoded, byte);
    return i < static_cast<int64_t>(encoded.ids.size()) && encoded.spans[i].begin < byte;
  });
}

}  // namespace tessera::data
