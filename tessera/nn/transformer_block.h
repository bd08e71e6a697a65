// A pre-norm transformer block.
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
  std::optional<SparseMLPOptions> sparse;  // if set, the block has a SparseMLP and `mlp` is not used
  NormOptions norm;
  // Names of the children in the family's files.
  std::string attention_name = "self_attn", mlp_name = "mlp", attention_norm_name = "input_layernorm",
              mlp_norm_name = "post_attention_layernorm";
};

// Computes h = x + attention(attention_norm(x)), then h + mlp(mlp_norm(h)).
class TransformerBlock : public Block {
 public:
  TransformerBlock(const TransformerBlockOptions& options, int64_t layer, at::ScalarType dtype);

  at::Tensor forward(const at::Tensor& x, const SequenceContext& context) override;
  CachedHeads cached_heads() const override { return attention->cached_heads(); }
  void recompute_hidden() override {
    mlp != nullptr ? mlp->recompute_hidden() : sparse_mlp->recompute_hidden();
  }

  const TransformerBlockOptions& options() const { return options_; }

  std::shared_ptr<Norm> attention_norm, mlp_norm;
  std::shared_ptr<Attention> attention;
  // Exactly one of the two is null.
  std::shared_ptr<MLP> mlp;
  std::shared_ptr<SparseMLP> sparse_mlp;

 private:
  const TransformerBlockOptions options_;
};

}  // namespace tessera::nn
