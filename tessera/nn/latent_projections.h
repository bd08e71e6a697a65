// The projections of multi-head latent attention.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include <torch/nn/module.h>

#include "tessera/nn/linear.h"
#include "tessera/nn/norm.h"

namespace tessera::nn {

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): keys and values of all heads are
// made of one narrow vector of the token, and the part of the keys that is rotated is the same for all heads.
struct LatentOptions {
  std::optional<int64_t> q_rank;  // of the vector of which queries are made; nothing: they are made of x
  int64_t kv_rank = 0;
  int64_t rope_dim = 0;   // elements of a head's queries and keys that are rotated: the first ones here
  int64_t value_dim = 0;  // elements of a head's values
  bool bias = false;      // of the projections to the narrow vectors
  NormOptions norm;       // of the narrow vectors
};

// Its layers are children of the attention module, with the names of DeepSeek's files. Files hold the rotated
// elements of a head of queries behind the others.
class LatentProjections {
 public:
  // head_dim: elements of a head's queries and keys.
  LatentProjections(torch::nn::Module& parent, const LatentOptions& options, int64_t hidden_size,
                    int64_t num_heads, int64_t head_dim, at::ScalarType dtype);

  // Rotates heads of `elements`, [tokens, heads * elements], of which the first `rope_dim` are rotated. `x`
  // may be overwritten; it is no view.
  using Rotate = std::function<at::Tensor(const at::Tensor& x, int64_t elements)>;
  // x: [tokens, hidden_size]. Returns q, k and v, each [tokens, heads here, width()]: zeros fill what a head
  // has less than that.
  std::array<at::Tensor, 3> operator()(const ops::Activation& x, const Rotate& rotate) const;

  const LatentOptions& options() const { return options_; }
  int64_t heads() const {
    return kv_b_->out_features() / (head_dim_ - options_.rope_dim + options_.value_dim);
  }
  int64_t width() const { return std::max(head_dim_, options_.value_dim); }
  // The layer that makes the queries.
  const Linear& queries() const { return *q_b_; }

 private:
  const LatentOptions options_;
  const int64_t head_dim_;
  std::shared_ptr<Linear> q_a_, q_b_, kv_a_, kv_b_;  // q_a: null if queries are made of x
  std::shared_ptr<Norm> q_norm_, kv_norm_;
};

}  // namespace tessera::nn
