#include "tessera/nn/gated_convolution.h"

#include <ATen/ATen.h>

#include "tessera/nn/row_turns.h"

namespace tessera::nn {

GatedConvolution::GatedConvolution(const GatedConvolutionOptions& o, int64_t layer, at::ScalarType dtype)
    : turn_(turn_of(o.hidden_size)), layer_(layer), core_(document_convolution()) {
  in_proj =
      register_module("in_proj", std::make_shared<Linear>(o.hidden_size, 3 * o.hidden_size, o.bias, dtype));
  in_proj->set_stored_rows(rows_in_turns(o.hidden_size, turn_, 3));
  conv = register_module("conv", std::make_shared<ShortConvolution>(o.hidden_size, o.taps, dtype, o.bias));
  out_proj =
      register_module("out_proj", std::make_shared<Linear>(o.hidden_size, o.hidden_size, o.bias, dtype));
}

at::Tensor GatedConvolution::forward(const ops::Activation& x, const SequenceContext& context) {
  return run(x, [&](const ops::Activation& in) { return mix(in, context); });
}

at::Tensor GatedConvolution::mix(const ops::Activation& x, const SequenceContext& context) const {
  const at::Tensor made = in_proj->forward(x);
  const auto parts = made.view({made.size(0), made.size(1) / (3 * turn_), 3, turn_}).unbind(2);
  const at::Tensor gated = (parts[0] * parts[2]).flatten(1);
  at::Tensor y = core_->convolve(gated, conv->taps(), context, layer_);
  if (conv->bias.defined()) y = y + conv->bias;
  return out_proj->forward(parts[1].flatten(1) * y);
}

}  // namespace tessera::nn
