#include "tessera/generation/score_tokens.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "tessera/core/error.h"
#include "tessera/device/device.h"
#include "tessera/device/host_memory.h"
#include "tessera/generation/generate.h"
#include "tessera/generation/scored_sequences.h"
#include "tessera/generation/token_log_probs.h"

namespace tessera::generation {
namespace {

using scoring::TokenRequest;

constexpr int64_t kPage = nn::KvCache::kPageTokens;
constexpr size_t kLookAhead = 256;  // sequences that a pass may be filled from

// [Note: beginnings of scored texts] The choices of a question begin alike, and so do the questions of a task
// with the same examples. The pages of such beginnings are computed once, and shared as those of requests to
// a server are (nn::KvCache). A sequence whose next page the pass fills already, for another one, waits for a
// later pass, and sequences behind it go before it.

struct Sequence : ScoredSequence {
  int64_t cached = -1;  // number in the cache, or -1 before the first part
  int64_t fed = 0;      // tokens that the cache holds
};

// A part of a sequence in one pass: tokens [begin, end) of its input.
struct Part {
  size_t sequence;
  int64_t begin, end;
};

class Scorer {
 public:
  Scorer(models::CausalLM& model, std::span<const TokenRequest> requests, const ScoreTokensOptions& options)
      : model_(model),
        requests_(requests),
        on_progress_(options.on_progress),
        max_tokens_(std::max<int64_t>(1, options.max_tokens)),
        max_rows_(std::max<int64_t>(1, kMaxLogits / model.config().vocab_size)),
        sequences_(sequences_of(requests, options.shares_beginnings && why_no_shared_pages(model).empty())),
        cache_(cache_options()),
        pending_(sequences_.size()),
        scores_(requests.size()) {
    std::iota(pending_.begin(), pending_.end(), size_t{0});
  }

  std::vector<TokenScore> run() {
    while (!pending_.empty()) {
      const std::vector<Part> parts = choose_parts();
      take(parts, feed(parts));
      if (on_progress_) on_progress_(num_done_, std::ssize(requests_));
    }
    return std::move(scores_);
  }

 private:
  static std::vector<Sequence> sequences_of(std::span<const TokenRequest> requests, bool shares) {
    std::vector<Sequence> sequences;
    for (ScoredSequence& one : shares ? group_by_beginning(requests) : group_requests(requests))
      sequences.push_back({std::move(one)});
    return sequences;
  }

  // Returns the options of the cache. Where pages are shared it has a bound, up to which it keeps those that
  // no sequence has at the moment: the longest sequence and some passes fit.
  nn::KvCacheOptions cache_options() const {
    nn::KvCacheOptions options = model_.cache_options();
    int64_t longest = 0;
    bool shares = false;
    for (const Sequence& sequence : sequences_) {
      longest = std::max(longest, sequence.length);
      shares = shares || !sequence.keys.empty();
    }
    if (shares) options.max_pages = nn::KvCache::pages_for(longest) + 3 * nn::KvCache::pages_for(max_tokens_);
    return options;
  }

  // Fills a pass with the next tokens, up to the limits.
  std::vector<Part> choose_parts() {
    std::vector<Part> parts;
    std::set<nn::PageKey> coming;  // pages that the pass fills
    const int64_t most = cache_.options().max_pages;
    int64_t tokens = max_tokens_, rows = max_rows_,
            pages = most > 0 ? most - cache_.used_pages() : std::numeric_limits<int64_t>::max();
    for (size_t next = 0; next < std::min(pending_.size(), kLookAhead) && tokens > 0 && rows > 0;) {
      Sequence& sequence = sequences_[pending_[next]];
      const bool is_new = sequence.cached < 0;
      const std::span<const nn::PageKey> keys = sequence.keys;
      const int64_t num_known = is_new ? cache_.count_known(keys) : 0;
      const auto known = keys.first(static_cast<size_t>(num_known));
      if (is_new && known.size() < keys.size() && coming.contains(keys[known.size()])) {
        ++next;
        continue;
      }
      const int64_t begin = is_new ? num_known * kPage : sequence.fed,
                    unscored = std::max<int64_t>(0, sequence.first_scored() - begin);
      const int64_t end = std::min({sequence.length, begin + tokens, begin + unscored + rows});
      const int64_t missing = is_new ? nn::KvCache::pages_for(end) - num_known + cache_.count_idle(known)
                                     : cache_.missing_pages(sequence.cached, end);
      if (missing > pages && !parts.empty()) break;
      pages -= missing;
      if (is_new) {
        sequence.cached = cache_.add();
        if (num_known > 0) cache_.share(sequence.cached, known);
      }
      parts.push_back({pending_[next], begin, end});
      for (const nn::PageKey& key : filled_pages(parts.back())) coming.insert(key);
      tokens -= end - begin;
      rows -= num_logits(parts.back());
      sequence.fed = end;
      const auto place = pending_.begin() + static_cast<std::ptrdiff_t>(next);
      if (end < sequence.length) {
        // It goes on first, so that there are pages for it.
        std::rotate(pending_.begin(), place, place + 1);
        break;
      }
      pending_.erase(place);
    }
    return parts;
  }

  // Returns the keys of the pages that are full after the part and were not before.
  std::span<const nn::PageKey> filled_pages(const Part& part) const {
    const std::span<const nn::PageKey> keys = sequences_[part.sequence].keys;
    const auto first = static_cast<size_t>(part.begin / kPage),
               end = std::min(static_cast<size_t>(part.end / kPage), keys.size());
    return first < end ? keys.subspan(first, end - first) : std::span<const nn::PageKey>();
  }

  // Returns how many logits the part needs: those of scored tokens, or one that nobody reads.
  int64_t num_logits(const Part& part) const {
    return std::max<int64_t>(1, part.end - std::max(part.begin, sequences_[part.sequence].first_scored()));
  }

  at::Tensor feed(const std::vector<Part>& parts) {
    std::vector<models::NewTokens> batch;
    for (const Part& part : parts) {
      const Sequence& sequence = sequences_[part.sequence];
      const std::vector<int64_t>& ids = requests_[sequence.requests[0]].ids;
      batch.push_back(
          {sequence.cached, {ids.begin() + part.begin, ids.begin() + part.end}, num_logits(part)});
    }
    at::Tensor logits = model_.next_logits(cache_, batch);
    for (const Part& part : parts) {
      int64_t page = part.begin / kPage;
      for (const nn::PageKey& key : filled_pages(part))
        cache_.set_key(sequences_[part.sequence].cached, page++, key);
    }
    return logits;
  }

  // Adds the log-probabilities of a pass to the scores of its requests.
  void take(const std::vector<Part>& parts, const at::Tensor& logits) {
    const c10::InferenceMode inference;
    // One entry for each scored token of each request: its row of logits, its id, and its request.
    std::vector<int64_t> rows, ids;
    std::vector<size_t> owners;
    int64_t first_row = 0;
    for (const Part& part : parts) {
      const Sequence& sequence = sequences_[part.sequence];
      const int64_t count = num_logits(part);
      for (const size_t owner : sequence.requests) {
        const TokenRequest& request = requests_[owner];
        for (int64_t i = std::max(part.end - count, sequence.length - request.num_scored); i < part.end;
             ++i) {
          rows.push_back(first_row + i - (part.end - count));
          ids.push_back(request.ids[static_cast<size_t>(i) + 1]);
          owners.push_back(owner);
        }
      }
      first_row += count;
      if (part.end < sequence.length) continue;
      cache_.free(sequence.cached);
      num_done_ += std::ssize(sequence.requests);
    }
    if (rows.empty()) return;
    const auto log_probs = token_log_probs(logits, rows, ids, 0);
    const at::Tensor likeliest = logits.argmax(1).to(on_host(at::kLong));
    const auto best = host_span<const int64_t>(likeliest);
    for (size_t i = 0; i < owners.size(); ++i) {
      const double log_prob = log_probs[i].log_prob;
      if (!std::isfinite(log_prob)) {
        throw Error(ErrorKind::Numerics, "SCORE", "the log-probability of a token is not finite")
            .got(std::to_string(log_prob));
      }
      scores_[owners[i]].log_prob += log_prob;
      const bool is_best = best[static_cast<size_t>(rows[i])] == ids[i];
      scores_[owners[i]].is_greedy = scores_[owners[i]].is_greedy && is_best;
    }
  }

  models::CausalLM& model_;
  std::span<const TokenRequest> requests_;
  const std::function<void(int64_t, int64_t)>& on_progress_;
  const int64_t max_tokens_, max_rows_;
  std::vector<Sequence> sequences_;
  nn::KvCache cache_;
  std::deque<size_t> pending_;  // sequences that are not done, the next one first
  std::vector<TokenScore> scores_;
  int64_t num_done_ = 0;
};

}  // namespace

std::vector<TokenScore> score_tokens(models::CausalLM& model, std::span<const TokenRequest> requests,
                                     const ScoreTokensOptions& options) {
  model.check_continues_texts("scoring");
  return Scorer(model, requests, options).run();
}

}  // namespace tessera::generation
