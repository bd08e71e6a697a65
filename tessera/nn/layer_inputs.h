// An embedding for each layer, beside the hidden states: what all layers get, and what a layer makes of its
// own (Gemma 3n and 4).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/nn/layer.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/norm.h"
#include "tessera/ops/mlp_activation.h"

namespace tessera::nn {

struct LayerInputsOptions {
  int64_t hidden_size = 0, num_layers = 0;
  int64_t size = 0;  // of what a layer gets of a token
  int64_t rows = 0;  // of the table of tokens, whose rows hold the vectors of all layers side by side
  ops::Nonlinearity activation = ops::Nonlinearity::GeluTanh;
  NormOptions norm;
  // Names in the family's files: first of the model's children, then of each block's.
  std::string table = "embed_tokens_per_layer", projection = "per_layer_model_projection",
              norm_name = "per_layer_projection_norm";
  std::string gate = "per_layer_input_gate", out = "per_layer_projection",
              out_norm = "post_per_layer_input_norm";
};

// Makes the vectors of all layers, of the hidden states before the first block and the rows of the table:
// (norm(hidden_size^-0.5 projection(x)) + rows) / sqrt(2), where the norm is over a layer's vector.
class LayerInputs : public Layer {
 public:
  // The projection and the norm become children of `parent`.
  LayerInputs(torch::nn::Module& parent, const LayerInputsOptions& options, at::ScalarType dtype);

  // x: [tokens, hidden_size]; rows: [tokens, num_layers size], scaled. Returns a [tokens, size] for each
  // layer; if the tokens of x and rows are cut over ranks, all of them on every rank.
  std::vector<at::Tensor> forward(const at::Tensor& x, const at::Tensor& rows) const;

  std::shared_ptr<Linear> projection;
  std::shared_ptr<Norm> norm;

 private:
  at::Tensor make(const at::Tensor& x, const at::Tensor& rows) const;

  int64_t hidden_size_, num_layers_, size_;
};

// Makes what a block adds to its result x for the layer's vector v: out_norm(out(f(gate(x)) v)).
class LayerInput : public Layer {
 public:
  // Its layers become children of `block`.
  LayerInput(torch::nn::Module& block, const LayerInputsOptions& options, at::ScalarType dtype);

  // x: [tokens, hidden_size]; v: [tokens, size], of all tokens. Returns the shape of x.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& v) const;

  std::shared_ptr<Linear> gate, out;
  std::shared_ptr<Norm> out_norm;

 private:
  ops::Nonlinearity activation_;
};

}  // namespace tessera::nn
