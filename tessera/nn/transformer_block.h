// One pre-norm transformer layer.
#pragma once

#include <memory>

#include "tessera/nn/attention.h"
#include "tessera/nn/block.h"
#include "tessera/nn/mlp.h"
#include "tessera/nn/rms_norm.h"

namespace tessera::nn {

struct TransformerBlockOptions {
  AttentionOptions attention;
  int64_t intermediate_size = 0;
  bool mlp_bias = false;
  double norm_eps = 1e-6;
};

// h = x + self_attn(input_layernorm(x)); h + mlp(post_attention_layernorm(h)).
class TransformerBlock : public Block {
 public:
  TransformerBlock(const TransformerBlockOptions& options, int64_t layer, at::ScalarType dtype);

  at::Tensor forward(const at::Tensor& x, const SequenceContext& context) override;
  CachedHeads cached_heads() const override { return self_attn->cached_heads(); }
  void recompute_hidden() override { mlp->recompute_hidden(); }

  std::shared_ptr<RMSNorm> input_layernorm, post_attention_layernorm;
  std::shared_ptr<Attention> self_attn;
  std::shared_ptr<MLP> mlp;
};

}  // namespace tessera::nn
