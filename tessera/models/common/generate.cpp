#include "tessera/models/common/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/core/rng.h"

namespace tessera::models {
namespace {

const uint64_t kSamplingStream = stream_of("generate.sample");

int64_t argmax(const std::vector<double>& logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

std::vector<double> to_doubles(const at::Tensor& logits) {
  const at::Tensor values = logits.detach().to(at::kDouble).contiguous();
  const double* data = values.const_data_ptr<double>();
  std::vector<double> result(data, data + values.numel());
  bool any_finite = false, any_nan = false;
  for (const double value : result) {
    any_finite = any_finite || std::isfinite(value);
    any_nan = any_nan || std::isnan(value) || value == HUGE_VAL;
  }
  if (!any_finite || any_nan) {
    throw Error(ErrorKind::Numerics, "LOGITS", "the model computed logits that are not finite");
  }
  return result;
}

// Draws from the tokens of `order` (by falling logit) with the probabilities of their logits.
int64_t draw(const std::vector<double>& logits, const std::vector<int64_t>& order, const SamplingOptions& o,
             uint64_t index) {
  const double highest = logits[static_cast<size_t>(order.front())];
  std::vector<double> weights(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    weights[i] = std::exp((logits[static_cast<size_t>(order[i])] - highest) / o.temperature);
  }
  double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  size_t kept = weights.size();
  if (o.top_p < 1.0) {
    double reached = 0.0;
    for (kept = 0; kept < weights.size() && reached < o.top_p * total; ++kept) reached += weights[kept];
    total = reached;
  }
  double left = CounterRng(o.seed, kSamplingStream).uniform(index) * total;
  for (size_t i = 0; i + 1 < kept; ++i) {
    left -= weights[i];
    if (left < 0.0) return order[i];
  }
  return order[kept - 1];
}

}  // namespace

void SamplingOptions::check() const {
  const auto refuse = [](const char* what, double value, const char* need) {
    throw Error(ErrorKind::Config, "SAMPLING", what).got(std::to_string(value)).need(need);
  };
  if (!(temperature >= 0.0 && temperature <= 100.0)) refuse("bad temperature", temperature, "0 to 100");
  if (!(top_p > 0.0 && top_p <= 1.0)) refuse("bad top_p", top_p, "above 0, at most 1");
  if (top_k < 0) refuse("bad top_k", static_cast<double>(top_k), "0 (all) or more");
}

int64_t sample(const at::Tensor& logits, const SamplingOptions& options, uint64_t index) {
  TESSERA_ASSERT(logits.dim() == 1 && logits.numel() > 0, "sample takes the logits of one position");
  const std::vector<double> values = to_doubles(logits);
  if (options.temperature < 1e-6) return argmax(values);
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto by_logit = [&](int64_t a, int64_t b) {
    const double x = values[static_cast<size_t>(a)], y = values[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const int64_t size = static_cast<int64_t>(order.size());
  const int64_t kept = options.top_k > 0 ? std::min(options.top_k, size) : size;
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), by_logit);
  order.resize(static_cast<size_t>(kept));
  return draw(values, order, options, index);
}

Generation generate(CausalLM& model, const std::vector<int64_t>& prompt, const GenerateOptions& options) {
  options.sampling.check();
  if (prompt.empty()) throw Error(ErrorKind::Config, "PROMPT", "the prompt holds no token");
  const ModelConfig& config = model.config();
  const auto& stops = options.stop_ids.empty() ? config.eos_token_ids : options.stop_ids;
  const int64_t prompt_size = static_cast<int64_t>(prompt.size());
  int64_t budget = options.max_new_tokens;
  if (config.generation_bound.has_value()) {
    // The last token that is chosen is never fed.
    budget = std::min(budget, std::max<int64_t>(config.generation_bound->tokens - prompt_size + 1, 1));
  }

  Generation result;
  nn::KvCache cache(config.num_layers, prompt_size + std::min<int64_t>(budget, 256));
  std::vector<int64_t> fed = prompt;
  for (int64_t i = 0; i < budget; ++i) {
    const at::Tensor ids = at::tensor(fed, at::kLong);
    const int64_t token = sample(model.next_logits(ids, cache), options.sampling, static_cast<uint64_t>(i));
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
      result.reason = FinishReason::Stop;
      return result;
    }
    result.token_ids.push_back(token);
    if (options.on_token && !options.on_token(token)) {
      result.reason = FinishReason::Callback;
      return result;
    }
    fed = {token};
  }
  return result;
}

}  // namespace tessera::models
