// A transformer block.
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
  bool is_parallel = false;   // attention and MLP read the same x
  double branch_scale = 1.0;  // multiplies what a branch adds to the residual sum
  // Names of the children in the family's files. A norm without a name does not exist; the MLP of a parallel
  // block then reads what attention reads.
  std::string attention_name = "self_attn", mlp_name = "mlp", attention_norm_name = "input_layernorm",
              mlp_norm_name = "post_attention_layernorm", attention_out_norm_name, mlp_out_norm_name;
};

// Computes h = x + attention(x), then h + mlp(h); in a parallel block x + attention(x) + mlp(x). Each branch
// reads its input through its norm, and its result goes through its out_norm.
class TransformerBlock : public Block {
 public:
  TransformerBlock(const TransformerBlockOptions& options, int64_t layer, at::ScalarType dtype);

  at::Tensor forward(const at::Tensor& x, const SequenceContext& context) override;
  CachedHeads cached_heads() const override { return attention->cached_heads(); }
  void recompute_hidden() override {
    mlp != nullptr ? mlp->recompute_hidden() : sparse_mlp->recompute_hidden();
  }

  const TransformerBlockOptions& options() const { return options_; }

  // Null if the options give no name.
  std::shared_ptr<Norm> attention_norm, mlp_norm, attention_out_norm, mlp_out_norm;
  std::shared_ptr<Attention> attention;
  // Exactly one of the two is null.
  std::shared_ptr<MLP> mlp;
  std::shared_ptr<SparseMLP> sparse_mlp;

 private:
  // Returns the residual sum x + delta, and what a branch reads of it through `norm`.
  ops::NormedResidual add_and_norm(const Norm* norm, const at::Tensor& x,
                                   const std::optional<at::Tensor>& delta) const;
  at::Tensor finished(const at::Tensor& branch, const Norm* norm) const;
  at::Tensor run_mlp(const ops::Activation& x, const SequenceContext& context) const;

  const TransformerBlockOptions options_;
};

}  // namespace tessera::nn
