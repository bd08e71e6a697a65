#include "tessera/models/common/causal_lm.h"

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/nn/call_hook.h"
#include "tessera/ops/linear.h"
#include "tessera/ops/linear_cross_entropy.h"

namespace tessera::models {

void CausalLM::check_length(int64_t length, const std::optional<LengthBound>& bound) const {
  if (!bound.has_value() || length <= bound->tokens) return;
  throw Error(ErrorKind::Model, "LENGTH", "document too long for this model: " + bound->reason)
      .at(config().source_file)
      .got(std::to_string(length) + " tokens")
      .need("at most " + std::to_string(bound->tokens));
}

void CausalLM::check_lengths(const std::vector<int64_t>& starts, int64_t tokens) const {
  TESSERA_ASSERT(!starts.empty() && starts.front() == 0 && starts.back() == tokens, "document starts");
  for (size_t i = 1; i < starts.size(); ++i) {
    check_length(starts[i] - starts[i - 1], config().document_bound);
  }
}

void CausalLM::check_ids(const at::Tensor& input_ids) const {
  if (input_ids.numel() == 0) return;
  const int64_t vocabulary = config().vocab_size;
  const auto [low, high] = at::aminmax(input_ids);
  const int64_t worst = low.item<int64_t>() < 0 ? low.item<int64_t>() : high.item<int64_t>();
  if (worst < 0 || worst >= vocabulary) {
    throw Error(ErrorKind::Data, "TOKEN-ID", "token id outside the model's vocabulary")
        .got(std::to_string(worst))
        .need("0 to " + std::to_string(vocabulary - 1))
        .hint("the tokenizer must belong to the model");
  }
}

at::Tensor CausalLM::loss(const nn::TokenBatch& batch) {
  TESSERA_ASSERT(batch.labels.defined(), "a loss needs labels");
  check_ids(batch.input_ids);
  check_lengths(batch.document_starts, batch.input_ids.size(0));
  return nn::call_hooked(*this, batch.input_ids, [this, batch](const at::Tensor& input_ids) {
    const at::Tensor hidden = hidden_states(input_ids, batch.position_ids, batch.document_starts, nullptr);
    return ops::linear_cross_entropy(hidden, output_weight(), batch.labels);
  });
}

at::Tensor CausalLM::logits(const nn::TokenBatch& batch) {
  check_ids(batch.input_ids);
  check_lengths(batch.document_starts, batch.input_ids.size(0));
  return nn::call_hooked(*this, batch.input_ids, [this, batch](const at::Tensor& input_ids) {
    const at::Tensor hidden = hidden_states(input_ids, batch.position_ids, batch.document_starts, nullptr);
    return ops::linear(hidden, output_weight());
  });
}

at::Tensor CausalLM::next_logits(const at::Tensor& input_ids, nn::KvCache& cache) {
  TESSERA_ASSERT(input_ids.dim() == 1 && input_ids.size(0) > 0, "next_logits takes at least one token");
  at::NoGradGuard no_grad;
  check_ids(input_ids);
  const int64_t past = cache.length(), added = input_ids.size(0);
  check_length(past + added, config().generation_bound);
  const at::Tensor position_ids = at::arange(past, past + added, at::kLong);
  return nn::call_hooked(*this, input_ids, [this, position_ids, added, &cache](const at::Tensor& ids) {
    const at::Tensor hidden = hidden_states(ids, position_ids, {0, added}, &cache);
    return ops::linear(hidden.narrow(0, added - 1, 1), output_weight()).squeeze(0);
  });
}

bool CausalLM::ignores_tensor(const std::string& name) const {
  return name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace tessera::models
