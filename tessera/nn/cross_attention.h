// Attention from the targets of an encoder-decoder to their sources.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/nn/attention_dropout.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/sequence.h"
#include "tessera/ops/attention_formula.h"

namespace tessera::nn {

struct CrossAttentionOptions {
  int64_t hidden_size = 0, num_heads = 0, head_dim = 0;
  double scale = 1.0;                              // factor of the scores
  double dropout = 0.0;                            // as in AttentionOptions
  std::string q = "q", k = "k", v = "v", o = "o";  // names of the projections in the family's files
};

// Multi-head attention in which each token of a target sees all tokens of its document's source. Its children
// are the projections, without biases, and by option `attention_dropout`.
class CrossAttention : public Layer {
 public:
  // `layer` selects the state of a sequence in a cache: the keys and values of its source, which are made in
  // the pass that has the source and read in all later ones.
  CrossAttention(const CrossAttentionOptions& options, int64_t layer, at::ScalarType dtype);

  // Makes the keys and values of the sources' hidden states, [tokens of the sources, hidden_size].
  SourceMemory read(const ops::Activation& sources);
  // x: [tokens of the targets, hidden_size] -> the same shape. context.memory is what read() has made of the
  // sources of this pass.
  at::Tensor forward(const ops::Activation& x, const SequenceContext& context);

  std::shared_ptr<Linear> q_proj, k_proj, v_proj, o_proj;
  std::shared_ptr<AttentionDropout> dropout;  // null without dropout

 private:
  // The memory of all documents, and where that of each begins, [documents + 1].
  struct Memories {
    SourceMemory all;
    std::vector<int64_t> starts;
  };
  at::Tensor in_heads(const at::Tensor& y) const;
  // Puts the memory of this pass into the cache, and returns that of all sequences.
  Memories through_cache(const SequenceContext& context) const;

  int64_t head_dim_, layer_;
  ops::AttentionFormula formula_;
};

}  // namespace tessera::nn
