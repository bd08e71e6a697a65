#include "tessera/nn/relative_bias.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/device/device.h"
#include "tessera/device/device_copy.h"
#include "tessera/ops/span_attention.h"
#include "tessera/ops/support.h"

namespace tessera::nn {
namespace {

int64_t longest_of(const std::vector<ops::AttentionSpan>& spans) {
  int64_t length = 1;
  for (const ops::AttentionSpan& span : spans) length = std::max(length, span.ahead + span.queries);
  return length;
}

class RelativeAttention : public AttentionCore {
 public:
  explicit RelativeAttention(std::shared_ptr<const RelativeBias> bias) : bias_(std::move(bias)) {}

  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const SequenceContext& context, int64_t layer,
                    const ops::AttentionFormula& formula) const override {
    if (context.cache != nullptr && formula.is_causal) return go_on(q, k, v, context, layer, formula);
    return run(q, k, v, ops::spans_of_documents(context.document_starts), formula);
  }

 private:
  at::Tensor run(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                 const std::vector<ops::AttentionSpan>& spans, const ops::AttentionFormula& formula) const {
    return ops::biased_attention(q, k, v, spans, formula, bias_->by_distance(longest_of(spans) - 1));
  }

  // Attends from the new tokens to those of the state and to themselves.
  at::Tensor go_on(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                   const SequenceContext& context, int64_t layer,
                   const ops::AttentionFormula& formula) const {
    enum Kept : size_t { kKeys, kValues };
    const std::vector<int64_t>& starts = context.document_starts;
    std::vector<LayerState> states = context.cache->states(layer);
    TESSERA_ASSERT(states.size() + 1 == starts.size(), "a state for each sequence");
    std::vector<at::Tensor> keys, values;
    std::vector<ops::AttentionSpan> spans;
    int64_t first_key = 0;
    for (size_t i = 0; i < states.size(); ++i) {
      const int64_t first = starts[i], count = starts[i + 1] - first;
      LayerState& state = states[i];
      const int64_t before = state.empty() ? 0 : state[kKeys].size(0);
      const auto with = [&](const at::Tensor& made, size_t kept) {
        const at::Tensor added = made.narrow(0, first, count);
        return state.empty() ? added.clone() : at::cat({state[kept], added});
      };
      state = {with(k, kKeys), with(v, kValues)};
      keys.push_back(state[kKeys]);
      values.push_back(state[kValues]);
      spans.push_back({first, count, first_key, before + count, before});
      first_key += before + count;
    }
    context.cache->set_states(layer, std::move(states));
    const bool is_one = keys.size() == 1;
    return run(q, is_one ? keys.front() : at::cat(keys), is_one ? values.front() : at::cat(values), spans,
               formula);
  }

  std::shared_ptr<const RelativeBias> bias_;
};

}  // namespace

// The logarithm is taken in float32, by the operations of Transformers' T5Attention: a distance on the bound
// of two buckets falls into the one that their rounding says.
at::Tensor DistanceBuckets::of(const at::Tensor& distances) const {
  const int64_t buckets = is_bidirectional ? count / 2 : count, exact = buckets / 2;
  const at::Tensor far = is_bidirectional ? distances.abs() : distances.neg().clamp_min(0);
  const double most = std::log(static_cast<double>(max_distance) / static_cast<double>(exact));
  const at::Tensor shares =
      at::log(far.clamp_min(1).to(at::kFloat) / exact) / most * static_cast<double>(buckets - exact);
  const at::Tensor further = (shares.to(at::kLong) + exact).clamp_max(buckets - 1);
  const at::Tensor found = at::where(far.lt(exact), far, further);
  return is_bidirectional ? found + distances.gt(0).to(at::kLong) * buckets : found;
}

RelativeBias::RelativeBias(const DistanceBuckets& buckets, int64_t heads, double initial_multiple,
                           at::ScalarType dtype)
    : buckets_(buckets), initial_multiple_(initial_multiple) {
  weight = register_parameter(
      "weight", at::empty({buckets.count, heads}, at::TensorOptions().dtype(dtype).device(at::kMeta)));
}

at::Tensor RelativeBias::by_distance(int64_t reach) const {
  const at::Tensor buckets =
      copy_to(buckets_.of(at::arange(-reach, reach + 1, on_host(at::kLong))), weight.device());
  return weight.to(ops::compute_type(weight.scalar_type())).index_select(0, buckets).t();
}

std::shared_ptr<const AttentionCore> relative_attention(std::shared_ptr<const RelativeBias> bias) {
  return std::make_shared<const RelativeAttention>(std::move(bias));
}

}  // namespace tessera::nn
