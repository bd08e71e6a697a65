// One pre-norm transformer layer.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tessera/nn/attention.h"
#include "tessera/nn/block.h"
#include "tessera/nn/mlp.h"
#include "tessera/nn/norm.h"
#include "tessera/nn/sparse_mlp.h"

namespace tessera::nn {

struct TransformerBlockOptions {
  AttentionOptions attention;
  MLPOptions mlp;
  std::optional<SparseMLPOptions> sparse;  // in place of `mlp`
  NormOptions norm;
  // Of the children, as the family's files name them.
  std::string attention_name = "self_attn", mlp_name = "mlp", attention_norm_name = "input_layernorm",
              mlp_norm_name = "post_attention_layernorm";
};

// h = x + attention(attention_norm(x)); h + mlp(mlp_norm(h)).
class TransformerBlock : public Block {
 public:
  TransformerBlock(const TransformerBlockOptions& options, int64_t layer, at::ScalarType dtype);

  at::Tensor forward(const at::Tensor& x, const SequenceContext& context) override;
  CachedHeads cached_heads() const override { return attention->cached_heads(); }
  void recompute_hidden() override {
    mlp != nullptr ? mlp->recompute_hidden() : sparse_mlp->recompute_hidden();
  }

  std::shared_ptr<Norm> attention_norm, mlp_norm;
  std::shared_ptr<Attention> attention;
  // One of them is null.
  std::shared_ptr<MLP> mlp;
  std::shared_ptr<SparseMLP> sparse_mlp;
};

}  // namespace tessera::nn
