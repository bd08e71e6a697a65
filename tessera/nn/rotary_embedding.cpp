#include "tessera/nn/rotary_embedding.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <ATen/ATen.h>

#include "tessera/core/check_argument.h"
#include "tessera/device/device.h"
#include "tessera/device/device_copy.h"
#include "tessera/device/device_event.h"

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

// Returns the (fractional) frequency index whose wave makes `rotations` turns over the original context.
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

at::Tensor plain_frequencies(double theta, int64_t head_dim, at::ScalarType type) {
  const at::Tensor dims = at::arange(0, head_dim, 2, on_host(type));
  return 1.0 / at::pow(theta, dims / static_cast<double>(head_dim));
}

at::Tensor longrope_frequencies(const at::Tensor& plain, const std::vector<double>& factors) {
  return plain / at::tensor(factors, on_host(at::kDouble)).to(plain.scalar_type());
}

at::Tensor proportional_frequencies(const at::Tensor& plain, const RopeOptions& o) {
  const at::Tensor scaled = plain / o.factor;
  scaled.narrow(0, o.turning, o.head_dim / 2 - o.turning).zero_();
  return scaled;
}

// Returns theta for a document of `length` tokens, which is longer than max_position_embeddings.
double dynamic_theta(const RopeOptions& o, int64_t length) {
  const double stretch = static_cast<double>(length) / static_cast<double>(o.max_position_embeddings);
  const double dim = static_cast<double>(o.head_dim);
  return o.theta * std::pow(o.factor * stretch - (o.factor - 1.0), dim / (dim - 2.0));
}

at::Tensor frequencies(const RopeOptions& o, at::ScalarType type) {
  const at::Tensor plain = plain_frequencies(o.theta, o.head_dim, type);
  switch (o.type) {
    case RopeType::Default:
    case RopeType::Dynamic: return plain;
    case RopeType::Linear: return plain / o.factor;
    case RopeType::Llama3: return llama3_frequencies(plain, o);
    case RopeType::Yarn: return yarn_frequencies(plain, o);
    case RopeType::LongRope: return longrope_frequencies(plain, o.short_factors);
    case RopeType::Proportional: return proportional_frequencies(plain, o);
  }
  return plain;
}

// Returns the longest document whose frequencies are those of frequencies(); nothing if all are.
std::optional<int64_t> plain_length(const RopeOptions& o) {
  if (o.type == RopeType::Dynamic) return o.max_position_embeddings;
  if (o.type == RopeType::LongRope) return o.original_max_position_embeddings;
  return std::nullopt;
}

// Returns the frequencies of a document that is longer.
at::Tensor frequencies_of_length(const RopeOptions& o, int64_t length, at::ScalarType type) {
  if (o.type == RopeType::Dynamic) return plain_frequencies(dynamic_theta(o, length), o.head_dim, type);
  return longrope_frequencies(plain_frequencies(o.theta, o.head_dim, type), o.long_factors);
}

}  // namespace

double yarn_attention_factor(double factor, double mscale, double mscale_all_dim) {
  const auto scale = [&](double weight) {
    return factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
  };
  if (mscale != 0.0 && mscale_all_dim != 0.0) return scale(mscale) / scale(mscale_all_dim);
  return scale(1.0);
}

RotaryEmbedding::RotaryEmbedding(const RopeOptions& options) : options_(options) {
  TESSERA_CHECK_ARGUMENT(options.head_dim > 0 && options.head_dim % 2 == 0,
                         "rotary embedding of an odd head_dim");
  at::NoGradGuard no_grad;
  frequencies_float_ = frequencies(options, at::kFloat);
  frequencies_double_ = frequencies(options, at::kDouble);
}

at::Tensor RotaryEmbedding::frequencies_on(c10::Device device, at::ScalarType type) const {
  const at::Tensor& here = type == at::kDouble ? frequencies_double_ : frequencies_float_;
  if (!has_streams(device)) return copy_to(here, device);
  const std::lock_guard<std::mutex> lock(mutex_);
  at::Tensor& there = there_[{device.type(), device.index(), type}];
  if (!there.defined()) there = copy_to(here, device);
  return there;
}

at::Tensor RotaryEmbedding::angle_of(const at::Tensor& position_ids,
                                     const std::vector<int64_t>& document_starts, at::ScalarType type,
                                     const TokenPart& part) const {
  const at::Tensor positions = position_ids.to(type).unsqueeze(1);
  at::Tensor angle = positions * frequencies_on(positions.device(), type);
  const std::optional<int64_t> plain = plain_length(options_);
  if (!plain) return angle;
  int64_t row = 0;
  for (const TokenRun& run : part.value_or(std::vector<TokenRun>{{0, document_starts.back()}})) {
    for (size_t i = 1; i < document_starts.size(); ++i) {
      const int64_t begin = std::max(run.first, document_starts[i - 1]),
                    end = std::min(run.first + run.count, document_starts[i]);
      const int64_t length = document_starts[i] - document_starts[i - 1];
      if (begin >= end || length <= *plain) continue;
      const at::Tensor own = frequencies_of_length(options_, length, type);
      const int64_t first = row + begin - run.first;
      angle.narrow(0, first, end - begin)
          .copy_(positions.narrow(0, first, end - begin) * copy_to(own, positions.device()));
    }
    row += run.count;
  }
  return angle;
}

std::pair<at::Tensor, at::Tensor> RotaryEmbedding::angles(const at::Tensor& position_ids,
                                                          const std::vector<int64_t>& document_starts,
                                                          at::ScalarType model_dtype,
                                                          const TokenPart& part) const {
  at::NoGradGuard no_grad;
  const at::ScalarType type = model_dtype == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor angle = angle_of(position_ids, document_starts, type, part);
  at::Tensor cos = angle.cos(), sin = angle.sin();
  if (options_.attention_factor != 1.0) {
    cos.mul_(options_.attention_factor);
    sin.mul_(options_.attention_factor);
  }
  return {cos, sin};
}

RotaryTable RotaryEmbedding::table(const at::Tensor& position_ids,
                                   const std::vector<int64_t>& document_starts, at::ScalarType model_dtype,
                                   const TokenPart& part) const {
  RotaryTable made;
  if (options_.rotates)
    std::tie(made.cos, made.sin) = angles(position_ids, document_starts, model_dtype, part);
  if (options_.query_beta == 0.0) return made;
  const at::Tensor turns = at::div(position_ids + options_.query_offset, options_.query_length, "floor")
                               .to(model_dtype == at::kDouble ? at::kDouble : at::kFloat);
  made.query_scale = (at::log1p(turns) * options_.query_beta + 1.0).view({-1, 1, 1});
  return made;
}

}  // namespace tessera::nn
