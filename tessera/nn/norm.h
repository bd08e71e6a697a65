// The interface of the normalisations.
#pragma once

#include <memory>
#include <optional>

#include "tessera/nn/layer.h"
#include "tessera/ops/rms_norm.h"

namespace tessera::nn {

// Normalises the last dim. A LayerParallel gets the residual sum as input and the normalised value as output.
class Norm : public Layer {
 public:
  Norm() { set_role(ParameterRole::Norm); }
  // x: [..., size] -> [..., size].
  at::Tensor forward(const at::Tensor& x) const;
  // Returns the residual sum x + delta (x itself without a delta) and its norm, for products to read. Both
  // have the shape of x.
  ops::NormedResidual add_and_norm(const at::Tensor& x,
                                   const std::optional<at::Tensor>& delta = std::nullopt) const;

 protected:
  virtual at::Tensor normalise(const at::Tensor& x) const = 0;
  virtual ops::NormedResidual add_and_normalise(const at::Tensor& x,
                                                const std::optional<at::Tensor>& delta) const = 0;
};

struct NormOptions {
  enum class Kind { Rms, Layer };  // RMSNorm, LayerNorm
  Kind kind = Kind::Rms;
  double eps = 1e-6;
  bool adds_one = false;  // the scale is 1 + weight
  // A norm without a scale has no parameters. Biases are of LayerNorms alone.
  bool has_bias = true, has_scale = true;
};

// Makes a norm over a last dim of `size` elements.
std::shared_ptr<Norm> make_norm(int64_t size, const NormOptions& options, at::ScalarType dtype);

}  // namespace tessera::nn
