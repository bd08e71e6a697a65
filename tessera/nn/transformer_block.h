// A transformer block.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tessera/nn/attention.h"
#include "tessera/nn/cross_attention.h"
#include "tessera/nn/dropout.h"
#include "tessera/nn/gated_convolution.h"
#include "tessera/nn/gated_delta_net.h"
#include "tessera/nn/layer_inputs.h"
#include "tessera/nn/mlp.h"
#include "tessera/nn/norm.h"
#include "tessera/nn/sparse_mlp.h"

namespace tessera::nn {

struct TransformerBlockOptions {
  AttentionOptions attention;
  MLPOptions mlp;
  // If set, the block has a SparseMLP. It takes the place of `mlp` unless `beside` is set: then both run, the
  // sparse one, which has this name, on the residual sum itself, and the result is the sum of the two, each
  // through a norm of its own.
  std::optional<SparseMLPOptions> sparse;
  struct Beside {
    std::string sparse_name, mlp_out_norm_name, sparse_out_norm_name;
  };
  std::optional<Beside> beside;
  // If one of them is set, the block has this mixer in the place of attention, whose options are not used.
  std::optional<GatedDeltaNetOptions> delta_net;
  std::optional<GatedConvolutionOptions> convolution;
  // If set, attention to the sources of the documents stands between the mixer and the MLP, as a branch with
  // a norm of its own.
  std::optional<CrossAttentionOptions> cross_attention;
  // The tokens that the block reads and changes; those of the other side pass it by.
  enum class Tokens { All, Sources, Targets };
  Tokens tokens = Tokens::All;
  NormOptions norm;
  bool is_parallel = false;   // attention and MLP read the same x
  bool norms_sums = false;    // the norms are over the residual sums, behind the branches
  double branch_scale = 1.0;  // multiplies what a branch adds to the residual sum
  // Probabilities of dropout, in training, of what the mixer (and so cross attention) and the MLP add to it,
  // and of what the MLP's last product reads.
  double mixer_dropout = 0.0, mlp_dropout = 0.0, mlp_hidden_dropout = 0.0;
  bool drops_sum = false;  // one mask is for both, as if it were for their sum
  // If set, the block adds what it makes of its vector, which has the number `layer_input_number` among those
  // of SequenceContext::layer_inputs.
  std::optional<LayerInputsOptions> layer_inputs;
  int64_t layer_input_number = 0;
  // If it has a name, the block's result is multiplied by a frozen number of this name.
  std::string result_scale_name = {};
  // Names of the children in the family's files. A norm without a name does not exist; the MLP of a parallel
  // block then reads what attention reads.
  std::string attention_name = "self_attn", mlp_name = "mlp", attention_norm_name = "input_layernorm",
              mlp_norm_name = "post_attention_layernorm", attention_out_norm_name, mlp_out_norm_name,
              cross_attention_name, cross_norm_name;

  bool has_attention() const { return !delta_net && !convolution; }
};

// Computes h = x + attention(x), or that of another mixer of tokens, then h + mlp(h); in a parallel block x +
// attention(x) + mlp(x). Each branch reads its input through its norm, and its result goes through its
// out_norm. With norms_sums, as in the first transformers, h = attention_norm(x + attention(x)), and the
// result is mlp_norm(h + mlp(h)). By option mlp(h) is the sum of two MLPs', and a LayerInput follows. A block
// of the sources or of the targets computes this of their rows alone.
//
// The unit of sharding, of activation checkpointing and of a pipeline's stages. Run a block through
// nn::call(), so that their hooks apply.
class TransformerBlock : public torch::nn::Module {
 public:
  // `layer` counts the blocks whose mixer is of the same kind; it selects what a cache has of them. A block
  // with cross attention takes two numbers, `layer` and the next one.
  TransformerBlock(const TransformerBlockOptions& options, int64_t layer, at::ScalarType dtype);

  // x: [tokens, hidden_size] -> [tokens, hidden_size]. The result depends on the arguments and the parameters
  // alone, since forward() may run again in the backward pass.
  at::Tensor forward(const at::Tensor& x, const SequenceContext& context);

  // Returns the shape of the keys and values that this block adds to a cache; no heads if it adds none.
  CachedHeads cached_heads() const {
    // The attention of an encoder-decoder keeps states instead.
    const bool has_pages = attention != nullptr && !attention->reads_keys() &&
                           options_.tokens == TransformerBlockOptions::Tokens::All;
    return has_pages ? attention->cached_heads() : CachedHeads();
  }
  // Makes the block recompute its largest activations in the backward instead of keeping them
  // (MLP::recompute_hidden).
  void recompute_hidden() {
    if (mlp != nullptr) mlp->recompute_hidden();
    if (sparse_mlp != nullptr) sparse_mlp->recompute_hidden();
  }

  const TransformerBlockOptions& options() const { return options_; }
  // Returns the last projection of the mixer, whose others multiply in its type.
  const Linear& mixer_output() const;

  // Norms what the block gives for its tokens, and then drops elements if `dropout` is not null. Both belong
  // to the model, which keeps the norm gathered while the block runs.
  void set_last_norm(std::shared_ptr<const Norm> norm, std::shared_ptr<const Dropout> dropout) {
    last_norm_ = std::move(norm);
    last_dropout_ = std::move(dropout);
  }

  // Null if the options give no name.
  std::shared_ptr<Norm> attention_norm, mlp_norm, attention_out_norm, mlp_out_norm;
  // Norms of the results of two MLPs that stand beside each other, or null.
  std::shared_ptr<Norm> dense_out_norm, sparse_out_norm;
  std::shared_ptr<LayerInput> layer_input;   // null without the option
  std::shared_ptr<BareValues> result_scale;  // [1]
  // All but one are null, and so below, unless both MLPs are there.
  std::shared_ptr<Attention> attention;
  std::shared_ptr<GatedDeltaNet> delta_net;
  std::shared_ptr<GatedConvolution> convolution;
  std::shared_ptr<MLP> mlp;
  std::shared_ptr<SparseMLP> sparse_mlp;
  std::shared_ptr<CrossAttention> cross_attention;  // null without the option, and so its norm
  std::shared_ptr<Norm> cross_norm;
  // Null without the options.
  std::shared_ptr<Dropout> mixer_dropout, cross_dropout, mlp_dropout, mlp_hidden_dropout;

 private:
  at::Tensor run_all(const at::Tensor& x, const SequenceContext& context) const;
  at::Tensor run_side(const at::Tensor& x, const SequenceContext& context) const;
  // Returns the residual sum x + delta, and what a branch reads of it through `norm`.
  ops::NormedResidual add_and_norm(const Norm* norm, const at::Tensor& x,
                                   const std::optional<at::Tensor>& delta) const;
  at::Tensor finished(const at::Tensor& branch, const Norm* norm, const Dropout* dropout) const;
  at::Tensor run_mixer(const ops::Activation& x, const SequenceContext& context) const;
  // `read`: what the MLP reads of the residual sum x.
  at::Tensor run_mlp(const at::Tensor& x, const ops::Activation& read, const SequenceContext& context) const;
  at::Tensor run_branches(const at::Tensor& x, const SequenceContext& context) const;
  // Returns x with what the block makes of its vector.
  at::Tensor add_layer_input(const at::Tensor& x, const SequenceContext& context) const;

  const TransformerBlockOptions options_;
  std::shared_ptr<const Norm> last_norm_;
  std::shared_ptr<const Dropout> last_dropout_;
};

}  // namespace tessera::nn
