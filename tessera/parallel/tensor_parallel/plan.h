// Describes how each layer of a model is spread over tensor parallel ranks.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tessera::parallel {

// The role of one layer in tensor parallelism (Shoeybi et al., "Megatron-LM", arXiv 1909.08053, section 3)
// and in sequence parallelism (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer
// Models", arXiv 2205.05198, section 4.2.2). Layers that a plan does not name are whole on every rank, with
// whole gradients.
struct LayerStyle {
  enum class Kind {
    Region,
    SummedRegion,
    Colwise,
    SharedColwise,
    Rowwise,
    RowwisePart,
    Vocabulary,
    PartialGradient,
    CutNorm,
    SharedCutNorm,
    PerToken,
    Sliced,
    WaitingRegion
  };
  Kind kind = Kind::Region;
  int64_t unit = 1;        // cuts fall on multiples of this
  int64_t inner_unit = 1;  // cuts of the second axis, if there are two, fall on multiples of this
  bool cuts_weight() const {
    return kind == Kind::Colwise || kind == Kind::SharedColwise || kind == Kind::Rowwise ||
           kind == Kind::RowwisePart || kind == Kind::Vocabulary || is_cut_norm();
  }
  bool is_cut_norm() const { return kind == Kind::CutNorm || kind == Kind::SharedCutNorm; }
  // Tells whether the layer is whole along the second axis, if there are two.
  bool is_shared() const { return kind == Kind::SharedColwise || kind == Kind::SharedCutNorm; }
  bool is_rowwise() const { return kind == Kind::Rowwise || kind == Kind::RowwisePart; }

  // A module whose layers are cut: it reads whole activations, and the gradients that its ranks have for them
  // are summed.
  static LayerStyle region() { return {Kind::Region}; }
  // A region that begins when the activations of all ranks are there: what is not a product reads them.
  static LayerStyle waiting_region() { return {Kind::WaitingRegion}; }
  // A region in which each rank's output is a part of a sum: the outputs are summed too.
  static LayerStyle summed_region() { return {Kind::SummedRegion}; }
  // A Linear that is cut along out_features: each rank makes a part of the outputs.
  static LayerStyle colwise(int64_t unit = 1, int64_t inner_unit = 1) {
    return {Kind::Colwise, unit, inner_unit};
  }
  // Like colwise(), but whole along the second axis: the ranks along that make the same outputs, and each
  // uses them for a part of what follows (keys and values whose queries are cut).
  static LayerStyle shared_colwise(int64_t unit) { return {Kind::SharedColwise, unit}; }
  // A Linear that is cut along in_features: each rank reads a part of the inputs, and the outputs are summed.
  static LayerStyle rowwise(int64_t unit = 1, int64_t inner_unit = 1) {
    return {Kind::Rowwise, unit, inner_unit};
  }
  // Like rowwise(), inside a summed region, which sums later.
  static LayerStyle rowwise_part(int64_t unit = 1, int64_t inner_unit = 1) {
    return {Kind::RowwisePart, unit, inner_unit};
  }
  // A table of tokens that is cut along the vocabulary: an Embedding, whose outputs are summed, or the Linear
  // or the nn::HeadBias of the output projection.
  static LayerStyle vocabulary() { return {Kind::Vocabulary}; }
  // A layer inside a region that is whole on every rank, which uses it for its part of an activation. Each
  // rank then has a part of the layer's gradients, and these are summed.
  static LayerStyle partial_gradient() { return {Kind::PartialGradient}; }
  // A norm, or the sinks, inside a region whose weight has a part for each head and is cut as the outputs of
  // a colwise() layer are, or, if `is_shared`, as those of a shared_colwise() one. An nn::RMSNorm over all
  // heads takes its mean over the ranks.
  static LayerStyle cut_norm(int64_t unit, int64_t inner_unit, bool is_shared) {
    return {is_shared ? Kind::SharedCutNorm : Kind::CutNorm, unit, inner_unit};
  }
  // A layer outside the regions, whole on every rank, that treats tokens one by one: a norm. With sequence
  // parallelism each rank runs it for its own tokens.
  static LayerStyle per_token() { return {Kind::PerToken}; }
  // Like per_token(), for a layer that reads all tokens, such as a table of positions: a rank's tokens are
  // cut from its output.
  static LayerStyle sliced() { return {Kind::Sliced}; }
};

// Layers by their names in named_modules().
using StyledLayers = std::vector<std::pair<std::string, LayerStyle>>;

struct TensorParallelPlan {
  StyledLayers layers;
  // Largest number of parts into which shared_colwise() layers can be cut; 0: any number. More ranks than
  // that must be a multiple of it, and form two axes: one over these parts, and one whose ranks share a part.
  int64_t most_shared_parts = 0;
};

// Returns the sizes of the one or two axes that `num_ranks` ranks form for the plan. Throws Error(Config,
// "TENSOR-PARALLEL") if they can form none.
std::vector<int64_t> tensor_parallel_axes(const TensorParallelPlan& plan, int64_t num_ranks);

}  // namespace tessera::parallel
