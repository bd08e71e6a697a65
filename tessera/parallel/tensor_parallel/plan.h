// How each layer of a model is spread over tensor parallel ranks.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tessera::parallel {

// One layer's part in tensor parallelism (Shoeybi et al., "Megatron-LM", arXiv 1909.08053, section 3) and in
// sequence parallelism (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
// arXiv 2205.05198, section 4.2.2). Layers that a plan does not name are whole on every rank, with whole
// gradients.
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
    PerToken,
    Sliced
  };
  Kind kind = Kind::Region;
  int64_t unit = 1;        // cuts fall on multiples of it
  int64_t inner_unit = 1;  // those of the second axis, where there are two
  bool cuts_weight() const {
    return kind == Kind::Colwise || kind == Kind::SharedColwise || kind == Kind::Rowwise ||
           kind == Kind::RowwisePart || kind == Kind::Vocabulary;
  }
  bool is_rowwise() const { return kind == Kind::Rowwise || kind == Kind::RowwisePart; }

  // A module whose layers are cut: it reads whole activations, and the gradients of its ranks are summed.
  static LayerStyle region() { return {Kind::Region}; }
  // The same where each rank's output is a part of a sum: the outputs are summed.
  static LayerStyle summed_region() { return {Kind::SummedRegion}; }
  // A Linear of which each rank makes a part of the outputs: cut along out_features.
  static LayerStyle colwise(int64_t unit = 1, int64_t inner_unit = 1) {
    return {Kind::Colwise, unit, inner_unit};
  }
  // The same, but whole along the second axis: its ranks make the same outputs, and each uses them for a part
  // of what follows (keys and values whose queries are cut).
  static LayerStyle shared_colwise(int64_t unit) { return {Kind::SharedColwise, unit}; }
  // A Linear of which each rank reads a part of the inputs: cut along in_features; the outputs are summed.
  static LayerStyle rowwise(int64_t unit = 1, int64_t inner_unit = 1) {
    return {Kind::Rowwise, unit, inner_unit};
  }
  // The same inside a summed region, which sums later.
  static LayerStyle rowwise_part() { return {Kind::RowwisePart}; }
  // A table of tokens cut along the vocabulary: an Embedding, whose outputs are summed, or the Linear of the
  // output projection.
  static LayerStyle vocabulary() { return {Kind::Vocabulary}; }
  // A layer inside a region that is whole on every rank, and used for each rank's part of an activation.
  static LayerStyle partial_gradient() { return {Kind::PartialGradient}; }
  // A layer outside the regions, whole on every rank, that treats tokens one by one: a norm. With sequence
  // parallelism each rank runs it for its tokens.
  static LayerStyle per_token() { return {Kind::PerToken}; }
  // The same of a layer that reads all tokens, such as a table of positions: a rank's tokens are cut from
  // what it gives.
  static LayerStyle sliced() { return {Kind::Sliced}; }
};

struct TensorParallelPlan {
  // By the names of named_modules().
  std::vector<std::pair<std::string, LayerStyle>> layers;
  // Into how many parts shared_colwise() layers can be cut; more ranks, a multiple of it, are two axes: one
  // over these parts, and one whose ranks share a part. 0: any number.
  int64_t most_shared_parts = 0;
};

// The ranks along each axis that `num_ranks` make for the plan: one axis, or two. Throws
// Error(Config, "TENSOR-PARALLEL") where they make none.
std::vector<int64_t> tensor_parallel_axes(const TensorParallelPlan& plan, int64_t num_ranks);

}  // namespace tessera::parallel
