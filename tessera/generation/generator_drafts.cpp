// The part of a Generator that deals with drafts: who gets one, and what becomes of it.
#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "tessera/generation/generate.h"
#include "tessera/ops/small_linear.h"

namespace tessera::generation {

// [Note: drafts] The tokens of a draft are fed behind the last token of a text in one pass, which gives the
// logits after each of them. Then tokens are chosen in rounds. The first round gives each sequence the token
// that any decoding step would. In a later round a sequence takes part whose last token is the one that its
// draft had in this place: the logits after it are there already. Each token is so chosen behind the same
// text, with the same random number, penalties and constraint as without a draft. Between the rounds the
// sequence counts as many tokens as fed as are known to be right; the cache holds the rest of the draft
// behind them, until it turns out wrong.

bool Generator::make_drafts() {
  if (options_.max_draft_tokens == 0) return false;
  // Beyond these rows the time of a product grows with each row.
  int64_t rows = ops::kSmallLinearRows - std::ssize(running_);
  const int64_t most_pages = cache_.options().max_pages;
  int64_t pages = most_pages - cache_.used_pages() - pages_of_step();
  bool are_any = false;
  for (RunningRequest& running : running_) {
    running.draft = {};
    const bool is_last_token = running.num_fed + 1 == running.text_size();
    if (rows <= 0 || !is_last_token || !running.draft_pace.is_due()) continue;
    // The token that this step chooses in any case needs a place, too.
    const int64_t left = running.budget - std::ssize(running.result.token_ids) - 1;
    int64_t most = std::min({options_.max_draft_tokens, rows, left});
    const int64_t length = cache_.length(running.sequence) + 1;
    const auto more_pages = [&](int64_t tokens) {
      return cache_.missing_pages(running.sequence, length + tokens) -
             cache_.missing_pages(running.sequence, length);
    };
    while (most > 0 && most_pages > 0 && more_pages(most) > pages) --most;
    if (most <= 0) continue;
    running.draft.tokens = draft_tokens(running.tokens(0, running.text_size()), most);
    const int64_t count = std::ssize(running.draft.tokens);
    rows -= count;
    pages -= more_pages(count);
    are_any = are_any || count > 0;
    counts_.drafts += count > 0 ? 1 : 0;
    counts_.drafted_tokens += count;
  }
  return are_any;
}

std::exception_ptr Generator::decode_with_drafts() {
  std::vector<models::NewTokens> batch;
  int64_t num_rows = 0;
  for (RunningRequest& running : running_) {
    std::vector<int64_t> ids = running.tokens(running.num_fed, running.num_fed + 1);
    ids.insert(ids.end(), running.draft.tokens.begin(), running.draft.tokens.end());
    running.draft.first_row = num_rows;
    num_rows += std::ssize(ids);
    const int64_t count = std::ssize(ids);
    batch.push_back({running.sequence, std::move(ids), count, running.options.adapter});
  }
  // If this throws, nothing has changed.
  at::Tensor logits;
  in_pass([&] { logits = model_.next_logits(cache_, batch); });
  std::exception_ptr failure;
  for (auto round = std::exchange(running_, {}); !round.empty(); round = take_right_drafts()) {
    const NextLogits next = logits_of_round(round, logits);
    times_.decode_tokens += std::ranges::count_if(round, &RunningRequest::is_fed);
    if (const auto problem = take_tokens(std::move(round), next)) failure = problem;
  }
  return failure;
}

NextLogits Generator::logits_of_round(std::vector<RunningRequest>& round, const at::Tensor& logits) {
  std::vector<models::NewTokens> fed;
  std::vector<TokenDraw> draws;
  std::vector<int64_t> rows;
  for (RunningRequest& request : round) {
    fed.push_back({request.sequence, request.tokens(request.num_fed, request.num_fed + 1)});
    ++request.num_fed;
    give_keys(request);
    draws.push_back(request.next_draw());
    rows.push_back(request.draft.first_row + static_cast<int64_t>(request.draft.num_right));
  }
  try {
    const c10::InferenceMode inference;
    return runner_.choose(fed, draws, logits.index_select(0, at::tensor(rows, on_host(at::kLong))));
  } catch (...) {
    end_all(round);
    throw;
  }
}

std::vector<RunningRequest> Generator::take_right_drafts() {
  std::vector<RunningRequest> right;
  for (RunningRequest& request : std::exchange(running_, {})) {
    Draft& draft = request.draft;
    const bool is_right = draft.num_right < draft.tokens.size() && request.num_fed < request.text_size() &&
                          draft.tokens[draft.num_right] == request.result.token_ids.back();
    if (is_right) {
      ++draft.num_right;
      ++counts_.accepted_tokens;
      right.push_back(std::move(request));
      continue;
    }
    if (!draft.tokens.empty()) {
      const int64_t num_wrong = std::ssize(draft.tokens) - static_cast<int64_t>(draft.num_right);
      cache_.truncate(request.sequence, cache_.length(request.sequence) - num_wrong);
      request.draft_pace.note(draft.num_right);
      draft = {};
    }
    running_.push_back(std::move(request));
  }
  return right;
}

}  // namespace tessera::generation
