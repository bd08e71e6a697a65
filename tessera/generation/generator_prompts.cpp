// The part of a Generator that reads prompts: which request comes next, and in how many passes its prompt is
// read.
#include <algorithm>
#include <exception>
#include <numeric>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/process_stats.h"
#include "tessera/generation/generate.h"
#include "tessera/generation/token_log_probs.h"

namespace tessera::generation {
namespace {

constexpr int64_t kPassesPerPart = 4;  // see [Note: parts of prompts]

}  // namespace

// [Note: parts of prompts] A prompt that is longer than a part is read in parts, each in a pass of its own,
// and several prompts may be in their middles. Whoever has least to read goes first, since others lose little
// by that: prompts that one pass reads before parts, and of several long prompts the one with the fewest
// unread tokens. So that no prompt waits for ever, every kPassesPerPart-th pass reads a part, and every
// kPassesPerPart-th part is of the oldest prompt.
//
// All who wait for a token wait for the pass that is under way, so parts have a bound in work and not in
// tokens: the attention of a token to a long beginning takes longer than the products with the weights. In a
// usual block (12 h^2 weights for a width of h) it takes as long if the beginning has 6 h tokens. A part
// therefore becomes a half, a quarter and so on of max_part_tokens as soon as the whole would take more than
// twice the time that it takes at the beginning. Where a part ends depends on nothing but the place in the
// prompt, and multiples of max_part_tokens are such places.

int64_t Generator::part_size(const RunningRequest& request) const {
  constexpr int64_t kFewest = 24;  // the blocks of attention want so many (ops/cached_blocks.h)
  const int64_t whole = options_.max_part_tokens, per_width = 6 * model_.config().hidden_size;
  const bool waits = request.sequence == RunningRequest::kNowhere;
  const int64_t begin = waits ? std::ssize(known_pages(request)) * nn::KvCache::kPageTokens : request.num_fed;
  int64_t size = whole;
  while (size % 2 == 0 && size / 2 >= kFewest &&
         size * (per_width + begin / whole * whole) > 2 * whole * per_width)
    size /= 2;
  return size;
}

bool Generator::can_join(const Group& group) const {
  if (!has_room(group)) return false;
  const RunningRequest& next = *next_waiting();
  return !is_long(next) && !will_share(group.members, next) &&
         (group.members.empty() || (group.tokens + num_unread(next) <= options_.max_prefill_tokens &&
                                    group.num_logits + num_logits(next) <= max_logits_));
}

bool Generator::admit() {
  while (has_room({}) && is_long(*next_waiting())) reading_.push_back(take_waiting());
  // The last part of a long prompt is read as a short one is.
  const auto long_ones = std::ranges::partition(reading_, [&](const auto& each) { return !is_long(each); });
  const bool are_others = long_ones.begin() != reading_.begin() || can_join({});
  if (!long_ones.empty() && (!are_others || num_passes_ + 1 >= kPassesPerPart)) {
    read_part();
    return true;
  }
  const Timer timer;
  Group group;
  const auto take = [&](RunningRequest request) {
    group.tokens += num_unread(request);
    group.num_logits += num_logits(request);
    group.members.push_back(std::move(request));
  };
  for (auto each = reading_.begin(); each != reading_.end();) {
    const bool fits =
        group.members.empty() || (group.tokens + num_unread(*each) <= options_.max_prefill_tokens &&
                                  group.num_logits + num_logits(*each) <= max_logits_);
    if (is_long(*each) || !fits) {
      ++each;
      continue;
    }
    take(std::move(*each));
    each = reading_.erase(each);
  }
  while (can_join(group)) take(take_waiting());
  if (group.members.empty()) return false;
  ++num_passes_;
  NextLogits logits;
  try {
    in_pass([&] { logits = read_prompts(group.members); });
  } catch (...) {
    // Nobody knows which one failed: all of them end.
    end_all(group.members);
    throw;
  }
  times_.prefill_tokens += group.tokens;
  const std::exception_ptr failure = take_tokens(std::move(group.members), logits);
  times_.prefill_s += timer.seconds();
  if (failure) std::rethrow_exception(failure);
  return true;
}

NextLogits Generator::read_prompts(std::vector<RunningRequest>& group) {
  std::vector<models::NewTokens> batch;
  std::vector<TokenDraw> draws;
  std::vector<int64_t> rows, ids;
  int64_t first_row = 0, num_top = 0;
  for (RunningRequest& request : group) {
    while (num_logits(request) > max_logits_) read_beginning(request, max_logits_);
    const int64_t fed = request.num_fed, count = num_logits(request);
    if (fed > 0 && request.options.sampling.repetition_penalty != 1.0)
      runner_.set_occurred(request.sequence, request.tokens(0, fed));
    if (request.scores_prompt()) {
      num_top = std::max(num_top, request.options.num_log_probs);
      for (int64_t i = 1; i < count; ++i) {
        rows.push_back(first_row + i - 1);
        ids.push_back(request.prompt[static_cast<size_t>(fed + i)]);
      }
    }
    first_row += count;
    batch.push_back(request.next_tokens(num_unread(request), count));
    draws.push_back(request.next_draw());
  }
  NextLogits logits = runner_.prefill(batch, draws);
  const auto log_probs =
      token_log_probs(logits.all.defined() ? logits.all : logits.raw(), rows, ids, num_top);
  logits.all.reset();
  size_t next = 0;
  for (RunningRequest& request : group) {
    for (int64_t i = 1; i < num_logits(request); ++i)
      request.of_prompt.push_back(request.with_wanted_top(log_probs[next++]));
    request.num_fed += num_unread(request);
    give_keys(request);
  }
  return logits;
}

void Generator::read_part() {
  const Timer timer;
  num_passes_ = 0;
  const bool is_turn_of_oldest = ++num_parts_ % kPassesPerPart == 0;
  // The last parts are left to admit(). Of equals the oldest one is read.
  const auto least = std::ranges::min_element(reading_, {}, [&](const RunningRequest& each) {
    return std::tuple{!is_long(each), is_turn_of_oldest ? 0 : num_unread(each), each.request};
  });
  const int64_t count = part_size(*least);
  try {
    in_pass([&] { read_beginning(*least, count); });
  } catch (...) {
    least->result.reason = FinishReason::Callback;
    finish(*least);
    reading_.erase(least);
    throw;
  }
  times_.prefill_tokens += count;
  times_.prefill_s += timer.seconds();
}

void Generator::read_beginning(RunningRequest& request, int64_t count) {
  const bool is_scored = request.scores_prompt();
  const int64_t end = request.num_fed + count;
  // Parts may be larger than the logits of one pass.
  while (request.num_fed < end) {
    const int64_t begin = request.num_fed,
                  size = is_scored ? std::min(end - begin, max_logits_) : end - begin;
    const at::Tensor logits = model_.next_logits(cache_, {request.next_tokens(size, is_scored ? size : 1)});
    request.num_fed += size;
    give_keys(request);
    if (!is_scored) continue;
    std::vector<int64_t> rows(static_cast<size_t>(size));
    std::iota(rows.begin(), rows.end(), int64_t{0});
    const auto scores = token_log_probs(logits, rows, request.tokens(begin + 1, begin + size + 1),
                                        request.options.num_log_probs);
    request.of_prompt.insert(request.of_prompt.end(), scores.begin(), scores.end());
  }
}

}  // namespace tessera::generation
