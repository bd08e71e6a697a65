#include "tessera/nn/cross_attention.h"

#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/ops/span_attention.h"

namespace tessera::nn {

CrossAttention::CrossAttention(const CrossAttentionOptions& o, int64_t layer, at::ScalarType dtype)
    : head_dim_(o.head_dim), layer_(layer), formula_{.scale = o.scale, .is_causal = false} {
  const int64_t size = o.num_heads * o.head_dim;
  const auto add = [&](const std::string& name, int64_t in, int64_t out) {
    return register_below(*this, name, std::make_shared<Linear>(in, out, /*bias=*/false, dtype));
  };
  q_proj = add(o.q, o.hidden_size, size);
  k_proj = add(o.k, o.hidden_size, size);
  v_proj = add(o.v, o.hidden_size, size);
  o_proj = add(o.o, size, o.hidden_size);
  dropout = add_attention_dropout(*this, o.dropout, o.num_heads,
                                  "block." + std::to_string(layer) + ".attention_dropout");
}

at::Tensor CrossAttention::in_heads(const at::Tensor& y) const {
  return y.view({y.size(0), y.size(1) / head_dim_, head_dim_});
}

SourceMemory CrossAttention::read(const ops::Activation& sources) {
  const auto made = forward_all(sources, {k_proj.get(), v_proj.get()});
  return {in_heads(made[0]), in_heads(made[1])};
}

CrossAttention::Memories CrossAttention::through_cache(const SequenceContext& context) const {
  enum Kept : size_t { kKeys, kValues };
  const std::vector<int64_t>& starts = context.sides->source.starts;
  std::vector<LayerState> states = context.cache->states(layer_);
  TESSERA_ASSERT(states.size() + 1 == starts.size(), "a state for each sequence");
  std::vector<at::Tensor> keys, values;
  std::vector<int64_t> all_starts = {0};
  for (size_t i = 0; i < states.size(); ++i) {
    const int64_t first = starts[i], count = starts[i + 1] - first;
    if (count > 0)
      states[i] = {context.memory.k.narrow(0, first, count).clone(),
                   context.memory.v.narrow(0, first, count).clone()};
    TESSERA_ASSERT(!states[i].empty(), "a target follows its source");
    keys.push_back(states[i][kKeys]);
    values.push_back(states[i][kValues]);
    all_starts.push_back(all_starts.back() + keys.back().size(0));
  }
  context.cache->set_states(layer_, std::move(states));
  const auto joined = [](const std::vector<at::Tensor>& parts) {
    return parts.size() == 1 ? parts.front() : at::cat(parts);
  };
  return {{joined(keys), joined(values)}, std::move(all_starts)};
}

at::Tensor CrossAttention::forward(const ops::Activation& x, const SequenceContext& context) {
  return run(x, [&](const ops::Activation& in) {
    TESSERA_ASSERT(context.sides != nullptr, "cross attention needs the sides of the documents");
    const at::Tensor q = in_heads(q_proj->forward(in));
    const Memories memory = context.cache == nullptr ? Memories{context.memory, context.sides->source.starts}
                                                     : through_cache(context);
    const std::vector<int64_t>& targets = context.sides->target.starts;
    std::vector<ops::AttentionSpan> spans;
    for (size_t i = 0; i + 1 < targets.size(); ++i) {
      spans.push_back({targets[i], targets[i + 1] - targets[i], memory.starts[i],
                       memory.starts[i + 1] - memory.starts[i], 0});
    }
    ops::AttentionFormula formula = formula_;
    if (dropout != nullptr) formula.dropout = dropout->of(q, q_proj->first_output() / head_dim_);
    const at::Tensor out = ops::span_attention(q, memory.all.k, memory.all.v, spans, formula);
    return o_proj->forward(out.view({out.size(0), out.size(1) * head_dim_}));
  });
}

}  // namespace tessera::nn
