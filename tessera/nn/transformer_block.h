// One pre-norm transformer layer.
#pragma once

#include <memory>

#include <torch/nn/module.h>

#include "tessera/nn/attention.h"
#include "tessera/nn/mlp.h"
#include "tessera/nn/rms_norm.h"
#include "tessera/nn/sequence.h"

namespace tessera::nn {

struct TransformerBlockOptions {
  AttentionOptions attention;
  int64_t intermediate_size = 0;
  bool mlp_bias = false;
  double norm_eps = 1e-6;
};

// h = x + self_attn(input_layernorm(x)); h + mlp(post_attention_layernorm(h)). Run it through nn::call(), so
// that sharding and activation checkpointing reach it.
class TransformerBlock : public torch::nn::Module {
 public:
  TransformerBlock(const TransformerBlockOptions& options, int64_t layer, at::ScalarType dtype);

  // x: [tokens, hidden_size] -> [tokens, hidden_size]
  at::Tensor forward(const at::Tensor& x, const SequenceContext& context);

  std::shared_ptr<RMSNorm> input_layernorm, post_attention_layernorm;
  std::shared_ptr<Attention> self_attn;
  std::shared_ptr<MLP> mlp;
};

}  // namespace tessera::nn
