#include "tessera/nn/rms_norm.h"

#include <utility>

#include <ATen/ATen.h>

namespace tessera::nn {

RMSNorm::RMSNorm(int64_t size, double eps, at::ScalarType dtype, bool adds_one)
    : eps_(eps), adds_one_(adds_one) {
  weight =
      register_parameter("weight", at::empty({size}, at::TensorOptions().dtype(dtype).device(at::kMeta)));
}

at::Tensor RMSNorm::scale() const {
  if (!adds_one_) return weight;
  // In bfloat16, 1 + weight would lose the bits by which most weights differ.
  return (weight.scalar_type() == at::kDouble ? weight : weight.to(at::kFloat)) + 1;
}

void RMSNorm::set_part(int64_t elements, ops::ChangeInPlace sum) {
  elements_ = elements;
  sum_ = std::move(sum);
}

at::Tensor RMSNorm::normalise(const at::Tensor& x) const {
  return sum_ ? normalise_part(x) : ops::rms_norm(x, scale(), eps_);
}

at::Tensor RMSNorm::normalise_part(const at::Tensor& x) const {
  const auto summed = [this](const at::Tensor& y) {
    at::Tensor copy = y.clone(at::MemoryFormat::Contiguous);
    sum_(copy);
    return copy;
  };
  const at::Tensor wide = x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
  // Every rank reads the sum, so its gradient is the sum of the ranks' gradients.
  const at::Tensor squares = ops::exchange_value(wide.square().sum(-1, true), summed, summed);
  const at::Tensor normed = wide * at::rsqrt(squares / static_cast<double>(elements_) + eps_);
  return (normed.to(x.scalar_type()) * scale()).to(x.scalar_type());
}

ops::NormedResidual RMSNorm::add_and_normalise(const at::Tensor& x,
                                               const std::optional<at::Tensor>& delta) const {
  return ops::add_rms_norm(x, delta, scale(), eps_);
}

}  // namespace tessera::nn
