// The gated delta net: a mixer of tokens that keeps a memory of constant size instead of keys and values.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/nn/bare_values.h"
#include "tessera/nn/delta_core.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/norm.h"
#include "tessera/nn/sequence.h"
#include "tessera/nn/short_convolution.h"

namespace tessera::nn {

struct GatedDeltaNetOptions {
  int64_t hidden_size = 0;
  int64_t num_key_heads = 0, num_value_heads = 0;  // the latter a multiple of the former
  int64_t key_dim = 0, value_dim = 0;              // elements of a head
  int64_t taps = 4;                                // of the convolution
  double norm_eps = 1e-6;
  // One projection makes queries, keys, values and gates, another one strengths and decays, head by head.
  bool is_joined = false;
};

// Computes, for each value head, RMSNorm(read) silu(z), where `read` is ops::gated_delta_rule() of the
// convolved projections of x to queries, keys and values, with the strength sigmoid(b) and the log decay
// -exp(A_log) softplus(a + dt_bias), and z, b and a are projections of x, too (Yang et al., arXiv 2412.06464,
// section 3.4; the form is that of Qwen3-Next). Its children have the names of Hugging Face files. The number
// of heads is taken from the parameters, since tensor parallelism may leave only a part of them.
class GatedDeltaNet : public Layer {
 public:
  // `layer` is the number among the model's mixers of this kind; it selects the state in a cache.
  GatedDeltaNet(const GatedDeltaNetOptions& options, int64_t layer, at::ScalarType dtype);

  // x: [tokens, hidden_size] -> [tokens, hidden_size].
  at::Tensor forward(const ops::Activation& x, const SequenceContext& context);

  // Replaces the core, which is document_delta() at first.
  void set_core(std::shared_ptr<const DeltaCore> core) { core_ = std::move(core); }

  const GatedDeltaNetOptions& options() const { return options_; }

  // Either the first two exist or the next four do; the others are null. The outputs of the first, and those
  // of in_proj_qkv, lie head by head: the query and key of a key head, and the values of its value heads,
  // which the gates follow in in_proj_qkvz.
  std::shared_ptr<Linear> in_proj_qkvz, in_proj_ba, in_proj_qkv, in_proj_z, in_proj_b, in_proj_a, out_proj;
  std::shared_ptr<ShortConvolution> conv1d;
  std::shared_ptr<BareValues> dt_bias, a_log;
  std::shared_ptr<Norm> norm;

 private:
  struct Projected {
    at::Tensor rows;  // [tokens, key heads, queries, keys and values of each]
    at::Tensor z;     // [tokens, value heads * value_dim], dense
    at::Tensor b, a;  // [tokens, value heads]
  };
  Projected project(const ops::Activation& x) const;
  at::Tensor mix(const ops::Activation& x, const SequenceContext& context) const;

  const GatedDeltaNetOptions options_;
  const int64_t values_;  // value heads of a key head
  const int64_t layer_;
  std::shared_ptr<const DeltaCore> core_;
};

}  // namespace tessera::nn
