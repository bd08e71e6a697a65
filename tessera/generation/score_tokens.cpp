#include "tessera/generation/score_tokens.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "tessera/core/error.h"
#include "tessera/device/device.h"
#include "tessera/device/host_memory.h"
#include "tessera/generation/token_log_probs.h"

namespace tessera::generation {
namespace {

using scoring::TokenRequest;

// Requests with the same input, which is all of their tokens but the last.
struct Sequence {
  std::vector<size_t> requests;  // the first one has the most scored tokens
  int64_t length = 0;            // of the input
  int64_t num_scored = 0;        // the most of any
  int64_t cached = -1;           // number in the cache, or -1 before the first part
  int64_t fed = 0;               // tokens that went through the model
};

// A part of a sequence in one pass: tokens [begin, end) of its input.
struct Part {
  size_t sequence;
  int64_t begin, end;
};

std::span<const int64_t> input_of(const TokenRequest& request) {
  return std::span(request.ids).first(request.ids.size() - 1);
}

std::vector<Sequence> group_requests(std::span<const TokenRequest> requests) {
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // The longest input comes first, so that memory is highest at the beginning.
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    const auto x = input_of(requests[a]), y = input_of(requests[b]);
    if (x.size() != y.size()) return x.size() > y.size();
    if (const auto less = std::lexicographical_compare_three_way(x.begin(), x.end(), y.begin(), y.end());
        less != 0)
      return less < 0;
    return requests[a].num_scored > requests[b].num_scored;
  });
  std::vector<Sequence> sequences;
  for (const size_t i : order) {
    const TokenRequest& request = requests[i];
    TESSERA_ASSERT(request.num_scored >= 1 && request.num_scored < std::ssize(request.ids),
                   "a scored request");
    if (sequences.empty() ||
        !std::ranges::equal(input_of(requests[sequences.back().requests[0]]), input_of(request))) {
      sequences.push_back({{}, std::ssize(request.ids) - 1, request.num_scored});
    }
    sequences.back().requests.push_back(i);
  }
  return sequences;
}

class Scorer {
 public:
  Scorer(models::CausalLM& model, std::span<const TokenRequest> requests, const ScoreTokensOptions& options)
      : model_(model),
        requests_(requests),
        on_progress_(options.on_progress),
        max_tokens_(std::max<int64_t>(1, options.max_tokens)),
        max_rows_(std::max<int64_t>(1, kMaxLogits / model.config().vocab_size)),
        cache_(model.cache_options()),
        sequences_(group_requests(requests)),
        scores_(requests.size()) {}

  std::vector<TokenScore> run() {
    while (next_ < sequences_.size()) {
      const std::vector<Part> parts = choose_parts();
      take(parts, feed(parts));
      if (on_progress_) on_progress_(num_done_, std::ssize(requests_));
    }
    return std::move(scores_);
  }

 private:
  // Returns the first input position of the sequence whose logits are wanted.
  static int64_t first_scored(const Sequence& sequence) { return sequence.length - sequence.num_scored; }

  // Fills a pass with the next tokens, up to the limits.
  std::vector<Part> choose_parts() {
    std::vector<Part> parts;
    int64_t tokens = max_tokens_, rows = max_rows_;
    for (; next_ < sequences_.size() && tokens > 0 && rows > 0; ++next_) {
      Sequence& sequence = sequences_[next_];
      const int64_t begin = sequence.fed, unscored = std::max<int64_t>(0, first_scored(sequence) - begin);
      const int64_t end = std::min({sequence.length, begin + tokens, begin + unscored + rows});
      parts.push_back({next_, begin, end});
      tokens -= end - begin;
      rows -= num_logits(parts.back());
      sequence.fed = end;
      if (end < sequence.length) break;
    }
    return parts;
  }

  // Returns how many logits the part needs: those of scored tokens, or one that nobody reads.
  int64_t num_logits(const Part& part) const {
    return std::max<int64_t>(1, part.end - std::max(part.begin, first_scored(sequences_[part.sequence])));
  }

  at::Tensor feed(const std::vector<Part>& parts) {
    std::vector<models::NewTokens> batch;
    for (const Part& part : parts) {
      Sequence& sequence = sequences_[part.sequence];
      if (sequence.cached < 0) sequence.cached = cache_.add();
      const std::vector<int64_t>& ids = requests_[sequence.requests[0]].ids;
      batch.push_back(
          {sequence.cached, {ids.begin() + part.begin, ids.begin() + part.end}, num_logits(part)});
    }
    return model_.next_logits(cache_, batch);
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
  nn::KvCache cache_;
  std::vector<Sequence> sequences_;
  std::vector<TokenScore> scores_;
  size_t next_ = 0;  // the first sequence that is not done
  int64_t num_done_ = 0;
};

}  // namespace

std::vector<TokenScore> score_tokens(models::CausalLM& model, std::span<const TokenRequest> requests,
                                     const ScoreTokensOptions& options) {
  model.check_continues_texts("scoring");
  return Scorer(model, requests, options).run();
}

}  // namespace tessera::generation
