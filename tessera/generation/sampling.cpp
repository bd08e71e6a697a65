#include "tessera/generation/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "tessera/core/error.h"
#include "tessera/core/rng.h"
#include "tessera/device/device_copy.h"
#include "tessera/device/host_memory.h"

namespace tessera::generation {
namespace {

const uint64_t kSamplingStream = stream_of("generate.sample");
// The number of tokens whose weights are worth a thread of their own.
constexpr int64_t kTokensOfThread = 8192;

Error not_finite() {
  return {ErrorKind::Numerics, "LOGITS",
          "the model computed logits that are not finite, or no token may be chosen"};
}

// Returns the index of the first of the largest logits. Keeps several running maxima side by side, so that
// the compiler makes vector instructions of the loop.
template <class T>
int64_t argmax(const T* logits, int64_t size) {
  constexpr int64_t kLanes = 64;
  constexpr T kLowest = -std::numeric_limits<T>::infinity(), kHighest = std::numeric_limits<T>::max();
  T lanes[kLanes];
  int32_t bad[kLanes] = {};
  std::fill(lanes, lanes + kLanes, kLowest);
  const auto take = [&](int64_t lane, T value) {
    lanes[lane] = value > lanes[lane] ? value : lanes[lane];
    // The negated comparison is true for NaN too.
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

// The order of tokens by falling logit, then by rising id. It is sorted only as far as it is asked for, since
// top_k and top_p mostly need a few of many thousands.
class FallingTokens {
 public:
  explicit FallingTokens(const std::vector<double>& logits) : logits_(logits), order_(logits.size()) {
    std::iota(order_.begin(), order_.end(), 0);
  }

  // Returns the token at place `rank` of the order.
  size_t token(size_t rank) {
    while (rank >= sorted_) sort_more();
    return static_cast<size_t>(order_[rank]);
  }
  bool is_before(size_t a, size_t b) const {
    return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b;
  }

 private:
  void sort_more() {
    const auto before = [this](int64_t a, int64_t b) {
      return is_before(static_cast<size_t>(a), static_cast<size_t>(b));
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

struct Weighted {
  size_t token = 0;
  int64_t weight = 0;
};

int64_t sum_of(const std::vector<Weighted>& tokens) {
  int64_t sum = 0;
  for (const Weighted& each : tokens) sum += each.weight;
  return sum;
}

// Returns the tokens that top_k, top_p and min_p keep, by rising id.
std::vector<Weighted> kept_tokens(const std::vector<double>& logits, double highest,
                                  const SamplingOptions& o) {
  const auto weight = [&](size_t token) {
    const double exact = std::exp((logits[token] - highest) / o.temperature);
    return static_cast<int64_t>(std::nearbyint(exact * kWeightOfOne));
  };
  std::optional<FallingTokens> falling;
  if (o.cuts()) falling.emplace(logits);
  // If top_k leaves tokens out, `kept` is filled in falling order; otherwise it holds all by rising id, which
  // needs no sort.
  const bool fall = o.top_k > 0 && o.top_k < std::ssize(logits);
  std::vector<Weighted> kept(fall ? static_cast<size_t>(o.top_k) : logits.size());
  if (fall) {
    for (size_t i = 0; i < kept.size(); ++i) {
      const size_t token = falling->token(i);
      kept[i] = {token, weight(token)};
    }
  } else {
    at::parallel_for(0, std::ssize(kept), kTokensOfThread, [&](int64_t begin, int64_t end) {
      for (auto token = static_cast<size_t>(begin); token < static_cast<size_t>(end); ++token)
        kept[token] = {token, weight(token)};
    });
  }
  if (o.top_p < 1.0) {
    const auto needed = static_cast<int64_t>(std::ceil(o.top_p * static_cast<double>(sum_of(kept))));
    size_t ranks = 0;  // number of first tokens that reach `needed`
    for (int64_t reached = 0; ranks < kept.size() && reached < needed; ++ranks)
      reached += kept[fall ? ranks : falling->token(ranks)].weight;
    const size_t last = falling->token(ranks - 1);
    std::erase_if(kept, [&](const Weighted& each) { return falling->is_before(last, each.token); });
  }
  if (fall) std::ranges::sort(kept, {}, &Weighted::token);
  const auto least = static_cast<int64_t>(std::ceil(o.min_p * kWeightOfOne));
  std::erase_if(kept, [least](const Weighted& each) { return each.weight < least; });
  return kept;
}

int64_t draw(const std::vector<double>& logits, double highest, const SamplingOptions& o, uint64_t index) {
  TESSERA_ASSERT(std::ssize(logits) <= kMostWeights, "a vocabulary whose weights can be added up");
  const std::vector<Weighted> kept = kept_tokens(logits, highest, o);
  const int64_t total = sum_of(kept);
  int64_t left =
      std::min(static_cast<int64_t>(o.random_number(index) * static_cast<double>(total)), total - 1);
  size_t at = 0;
  while ((left -= kept[at].weight) >= 0) ++at;
  return static_cast<int64_t>(kept[at].token);
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
  if (!(std::abs(presence_penalty) <= 2.0)) refuse("bad presence_penalty", presence_penalty, "-2 to 2");
  if (!(std::abs(frequency_penalty) <= 2.0)) refuse("bad frequency_penalty", frequency_penalty, "-2 to 2");
}

double SamplingOptions::random_number(uint64_t index) const {
  return CounterRng(seed, kSamplingStream, sequence).uniform(index);
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

TokenChoice::TokenChoice(const at::Tensor& logits, const at::Tensor& chosen)
    : is_chosen_(chosen.defined()), values_(HostCopy(is_chosen_ ? chosen : logits).wait()) {}

int64_t TokenChoice::choose(int64_t row, const SamplingOptions& options, uint64_t index) const {
  if (!is_chosen_) return sample(values_.select(0, row), options, index);
  const auto values = host_span<const double>(values_);
  const auto rows = static_cast<size_t>(values_.size(1)), place = static_cast<size_t>(row);
  if (!std::isfinite(values[rows + place])) throw not_finite();
  return static_cast<int64_t>(values[place]);
}

}  // namespace tessera::generation
