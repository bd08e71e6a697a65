#include "tessera/nn/rotary_embedding.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "tessera/core/error.h"

namespace tessera::nn {
namespace {

at::Tensor llama3_frequencies(const at::Tensor& plain, const RopeOptions& o) {
  const double context = static_cast<double>(o.original_max_position_embeddings);
  const at::Tensor wavelength = (2.0 * M_PI) / plain;
  const at::Tensor is_low = wavelength > context / o.low_freq_factor;
  const at::Tensor is_high = wavelength < context / o.high_freq_factor;
  const at::Tensor smooth =
      (context / wavelength - o.low_freq_factor) / (o.high_freq_factor - o.low_freq_factor);
  const at::Tensor blended = (1.0 - smooth) * plain / o.factor + smooth * plain;
  return at::where(is_low, plain / o.factor, at::where(is_high, plain, blended));
}

// The dimension whose wavelength makes `rotations` turns over the original context.
double yarn_dimension(double rotations, const RopeOptions& o) {
  const double context = static_cast<double>(o.original_max_position_embeddings);
  return static_cast<double>(o.head_dim) * std::log(context / (rotations * 2.0 * M_PI)) /
         (2.0 * std::log(o.theta));
}

at::Tensor yarn_frequencies(const at::Tensor& plain, const RopeOptions& o) {
  double low = yarn_dimension(o.beta_fast, o);
  double high = yarn_dimension(o.beta_slow, o);
  if (o.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(o.head_dim - 1));
  if (low == high) high += 0.001;
  const at::Tensor ramp = at::clamp((at::arange(o.head_dim / 2, plain.options()) - low) / (high - low), 0, 1);
  const at::Tensor kept = 1.0 - ramp;
  return plain / o.factor * (1.0 - kept) + plain * kept;
}

at::Tensor frequencies(const RopeOptions& o, at::ScalarType type) {
  const auto options = at::TensorOptions().dtype(type);
  const at::Tensor exponents = at::arange(0, o.head_dim, 2, options) / static_cast<double>(o.head_dim);
  const at::Tensor plain = 1.0 / at::pow(o.theta, exponents);
  switch (o.type) {
    case RopeType::Default:
    case RopeType::Dynamic: return plain;
    case RopeType::Linear: return plain / o.factor;
    case RopeType::Llama3: return llama3_frequencies(plain, o);
    case RopeType::Yarn: return yarn_frequencies(plain, o);
  }
  return plain;
}

}  // namespace

double yarn_attention_factor(double factor, double mscale, double mscale_all_dim) {
  const auto scale = [&](double weight) { return factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0; };
  if (mscale != 0.0 && mscale_all_dim != 0.0) return scale(mscale) / scale(mscale_all_dim);
  return scale(1.0);
}

RotaryEmbedding::RotaryEmbedding(const RopeOptions& options) : options_(options) {
  TESSERA_ASSERT(options.head_dim > 0 && options.head_dim % 2 == 0, "rotary embedding of an odd head_dim");
  at::NoGradGuard no_grad;
  frequencies_float_ = frequencies(options, at::kFloat);
  frequencies_double_ = frequencies(options, at::kDouble);
}

std::pair<at::Tensor, at::Tensor> RotaryEmbedding::angles(const at::Tensor& position_ids,
                                                          at::ScalarType model_dtype) const {
  at::NoGradGuard no_grad;
  const at::Tensor& frequencies = model_dtype == at::kDouble ? frequencies_double_ : frequencies_float_;
  const at::Tensor angle = position_ids.to(frequencies.scalar_type()).unsqueeze(1) * frequencies;
  at::Tensor cos = angle.cos(), sin = angle.sin();
  if (options_.attention_factor != 1.0) {
    cos.mul_(options_.attention_factor);
    sin.mul_(options_.attention_factor);
  }
  return {cos, sin};
}

}  // namespace tessera::nn
