// The gated short convolution: a mixer of tokens that looks back over a few of them.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/nn/convolution_core.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/sequence.h"
#include "tessera/nn/short_convolution.h"

namespace tessera::nn {

struct GatedConvolutionOptions {
  int64_t hidden_size = 0;
  int64_t taps = 3;  // of the convolution
  bool bias = false;
};

// Computes out_proj(c * conv(b * y)), where b, c and y are projections of x and conv is
// ops::causal_convolution() (Liquid AI, arXiv 2511.23404, section 2). Its children have the names of Hugging
// Face files: in_proj, conv, out_proj. The number of channels is taken from the parameters, since tensor
// parallelism may leave only a part of them.
class GatedConvolution : public Layer {
 public:
  // `layer` is the number among the model's mixers of this kind; it selects the state in a cache.
  GatedConvolution(const GatedConvolutionOptions& options, int64_t layer, at::ScalarType dtype);

  // x: [tokens, hidden_size] -> [tokens, hidden_size].
  at::Tensor forward(const ops::Activation& x, const SequenceContext& context);

  // Replaces the core, which is document_convolution() at first.
  void set_core(std::shared_ptr<const ConvolutionCore> core) { core_ = std::move(core); }

  // Returns the channels of b, of c and of y that lie side by side in the outputs of in_proj, in turns.
  int64_t turn() const { return turn_; }

  std::shared_ptr<Linear> in_proj, out_proj;
  std::shared_ptr<ShortConvolution> conv;

 private:
  at::Tensor mix(const ops::Activation& x, const SequenceContext& context) const;

  const int64_t turn_, layer_;
  std::shared_ptr<const ConvolutionCore> core_;
};

}  // namespace tessera::nn
