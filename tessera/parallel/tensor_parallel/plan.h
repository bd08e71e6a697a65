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
  enum class Kind { Region, Colwise, Rowwise, Vocabulary, PartialGradient, PerToken, Sliced };
  Kind kind = Kind::Region;
  int64_t unit = 1;  // cuts fall on multiples of it
  bool cuts_weight() const {
    return kind == Kind::Colwise || kind == Kind::Rowwise || kind == Kind::Vocabulary;
  }

  // A module whose layers are cut: it reads whole activations, and the gradients of its ranks are summed.
  static LayerStyle region() { return {Kind::Region}; }
  // A Linear of which each rank makes a part of the outputs: cut along out_features.
  static LayerStyle colwise(int64_t unit = 1) { return {Kind::Colwise, unit}; }
  // A Linear of which each rank reads a part of the inputs: cut along in_features; the outputs are summed.
  static LayerStyle rowwise(int64_t unit = 1) { return {Kind::Rowwise, unit}; }
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

// By the names of named_modules().
using TensorParallelPlan = std::vector<std::pair<std::string, LayerStyle>>;

}  // namespace tessera::parallel
