#include "tessera/models/common/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/core/device_copy.h"
#include "tessera/core/error.h"
#include "tessera/core/host_memory.h"
#include "tessera/core/rng.h"

namespace tessera::models {
namespace {

const uint64_t kSamplingStream = stream_of("generate.sample");

Error not_finite() {
  return {ErrorKind::Numerics, "LOGITS", "the model computed logits that are not finite"};
}

// The first of the largest logits. Several running maxima side by side, which the compiler turns into
// vectors.
template <class T>
int64_t argmax(const T* logits, int64_t size) {
  constexpr int64_t kLanes = 64;
  constexpr T kLowest = -std::numeric_limits<T>::infinity(), kHighest = std::numeric_limits<T>::max();
  T lanes[kLanes];
  int32_t bad[kLanes] = {};
  std::fill(lanes, lanes + kLanes, kLowest);
  const auto take = [&](int64_t lane, T value) {
    lanes[lane] = value > lanes[lane] ? value : lanes[lane];
    // True for NaN too.
    bad[lane] |= static_cast<int32_t>(!(value <= kHighest));
  };
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) take(lane, logits[i + lane]);
  }
  for (; i < size; ++i) take(0, logits[i]);
  const T highest = *std::max_element(lanes, lanes + kLanes);
  const bool any_bad = std::any_of(bad, bad + kLanes, [](int32_t b) { return b != 0; });
  if (any_bad || highest == kLowest) throw not_finite();
  return std::find(logits, logits + size, highest) - logits;
}

int64_t likeliest_token(const at::Tensor& logits) {
  if (logits.scalar_type() == at::kDouble) {
    return argmax(host_span<const double>(logits).data(), logits.numel());
  }
  const at::Tensor values = logits.to(at::kFloat);
  return argmax(host_span<const float>(values).data(), values.numel());
}

// Tokens by falling logit, then by rising id, sorted only as far as they are asked for.
class FallingTokens {
 public:
  explicit FallingTokens(const std::vector<double>& logits) : logits_(logits), order_(logits.size()) {
    std::iota(order_.begin(), order_.end(), 0);
  }

  size_t token(size_t rank) {
    while (rank >= sorted_) sort_more();
    return static_cast<size_t>(order_[rank]);
  }

 private:
  void sort_more() {
    const auto before = [this](int64_t a, int64_t b) {
      const double x = logits_[static_cast<size_t>(a)], y = logits_[static_cast<size_t>(b)];
      return x != y ? x > y : a < b;
    };
    const size_t next = std::min(order_.size(), std::max<size_t>(64, 8 * sorted_));
    const auto first = order_.begin() + static_cast<ptrdiff_t>(sorted_),
               last = order_.begin() + static_cast<ptrdiff_t>(next);
    if (next < order_.size()) std::nth_element(first, last, order_.end(), before);
    std::sort(first, last, before);
    sorted_ = next;
  }

  const std::vector<double>& logits_;
  std::vector<int64_t> order_;
  size_t sorted_ = 0;
};

// Draws with the probabilities of the logits, out of the likeliest tokens that the options leave.
int64_t draw(const std::vector<double>& logits, double highest, const SamplingOptions& o, uint64_t index) {
  const auto weight = [&](size_t token) { return std::exp((logits[token] - highest) / o.temperature); };
  FallingTokens order(logits);
  size_t kept = logits.size();
  double total = 0.0;
  if (o.top_k > 0 && static_cast<size_t>(o.top_k) < kept) {
    kept = static_cast<size_t>(o.top_k);
    for (size_t rank = 0; rank < kept; ++rank) total += weight(order.token(rank));
  } else {
    for (size_t token = 0; token < kept; ++token) total += weight(token);
  }
  if (o.top_p < 1.0) {
    double reached = 0.0;
    size_t rank = 0;
    for (; rank < kept && reached < o.top_p * total; ++rank) reached += weight(order.token(rank));
    kept = rank;
    total = reached;
  }
  if (o.min_p > 0.0) {
    // The likeliest has the weight 1.
    double reached = 0.0;
    size_t rank = 0;
    for (; rank < kept && (rank == 0 || weight(order.token(rank)) >= o.min_p); ++rank)
      reached += weight(order.token(rank));
    kept = rank;
    total = reached;
  }
  double left = CounterRng(o.seed, kSamplingStream, o.sequence).uniform(index) * total;
  for (size_t rank = 0; rank + 1 < kept; ++rank) {
    left -= weight(order.token(rank));
    if (left < 0.0) return static_cast<int64_t>(order.token(rank));
  }
  return static_cast<int64_t>(order.token(kept - 1));
}

}  // namespace

void SamplingOptions::check() const {
  const auto refuse = [](const char* what, double value, const char* need) {
    throw Error(ErrorKind::Config, "SAMPLING", what).got(std::to_string(value)).need(need);
  };
  if (!(temperature >= 0.0 && temperature <= 100.0)) refuse("bad temperature", temperature, "0 to 100");
  if (!(top_p > 0.0 && top_p <= 1.0)) refuse("bad top_p", top_p, "above 0, at most 1");
  if (top_k < 0) refuse("bad top_k", static_cast<double>(top_k), "0 (all) or more");
  if (!(min_p >= 0.0 && min_p <= 1.0)) refuse("bad min_p", min_p, "0 to 1");
  if (!(repetition_penalty > 0.0 && repetition_penalty <= 100.0))
    refuse("bad repetition_penalty", repetition_penalty, "above 0, at most 100; 1 = none");
}

at::Tensor penalize(const at::Tensor& logits, const SamplingOptions& options,
                    const std::vector<int64_t>& occurred) {
  if (options.repetition_penalty == 1.0 || occurred.empty()) return logits;
  const std::set<int64_t> once(occurred.begin(), occurred.end());
  const at::Tensor ids =
      at::tensor(std::vector<int64_t>(once.begin(), once.end()), on_host(at::kLong)).to(logits.device());
  const at::Tensor scores = logits.index_select(0, ids);
  const at::Tensor changed =
      at::where(scores < 0, scores * options.repetition_penalty, scores / options.repetition_penalty);
  return logits.index_copy(0, ids, changed);
}

at::Tensor likeliest_tokens(const at::Tensor& logits) {
  // Of equals the first, and of NaN and a number NaN.
  const at::Tensor ids = logits.argmax(1);
  return at::stack({ids.to(at::kDouble), logits.gather(1, ids.unsqueeze(1)).squeeze(1).to(at::kDouble)});
}

int64_t sample(const at::Tensor& logits_in, const SamplingOptions& options, uint64_t index) {
  TESSERA_ASSERT(logits_in.dim() == 1 && logits_in.numel() > 0, "sample takes the logits of one position");
  const at::Tensor logits = logits_in.detach().to(kHost).contiguous();
  const int64_t likeliest = likeliest_token(logits);
  if (options.is_greedy()) return likeliest;
  const at::Tensor doubles = logits.to(at::kDouble);
  const auto all = host_span<const double>(doubles);
  const std::vector<double> values(all.begin(), all.end());
  return draw(values, values[static_cast<size_t>(likeliest)], options, index);
}

TokenChoice::TokenChoice(const at::Tensor& logits, const at::Tensor& likeliest, bool needs_logits)
    : has_logits_(needs_logits || !likeliest.defined()),
      values_(HostCopy(has_logits_ ? logits : likeliest).wait()) {}

bool TokenChoice::needs_logits(const SamplingOptions& options) {
  return !options.is_greedy() || options.repetition_penalty != 1.0;
}

int64_t TokenChoice::choose(int64_t row, const SamplingOptions& options, const std::vector<int64_t>& occurred,
                            uint64_t index) const {
  if (has_logits_) return sample(penalize(values_.select(0, row), options, occurred), options, index);
  const auto values = host_span<const double>(values_);
  const auto rows = static_cast<size_t>(values_.size(1)), place = static_cast<size_t>(row);
  if (!std::isfinite(values[rows + place])) throw not_finite();
  return static_cast<int64_t>(values[place]);
}

}  // namespace tessera::models
