#include "tessera/checkpoint/rope_factors.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace tessera::checkpoint {
namespace {

double wavelength(const Llama3Rope& rope, size_t i) {
  const double frequency =
      std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(rope.head_dim));
  return 2.0 * std::numbers::pi / frequency;
}

bool has_factors(const Llama3Rope& rope, const std::vector<float>& factors) {
  return std::ranges::equal(rope_factors(rope), factors, [](float a, float b) {
    return std::fabs(static_cast<double>(a) - static_cast<double>(b)) <= 1e-5 * static_cast<double>(b);
  });
}

// Rounds away what a float32 does not tell.
double rounded(double value) { return std::round(value * 1e5) / 1e5; }

// A frequency that is neither kept nor divided by the whole factor, by the share of it that is kept. That is
// linear in 1 / wavelength: share = slope / wavelength - offset, with slope = context / (high - low) and
// offset = low / (high - low).
struct Blended {
  double wavelength, share;
};

// Finds the settings with low = 1 that have these factors. Two blended frequencies tell them. One leaves a
// choice, for which contexts of powers of two are tried; with none the settings need only stand between the
// wavelengths of what is kept and what is divided.
std::optional<Llama3Rope> solve(const std::vector<float>& factors, Llama3Rope rope) {
  const double largest = rope.factor;
  std::vector<Blended> blended;
  double last_kept = 0.0, first_divided = 1e15;  // wavelengths
  for (size_t i = 0; i < factors.size(); ++i) {
    const double factor = static_cast<double>(factors[i]), length = wavelength(rope, i);
    if (factor <= 1.0) last_kept = length;
    if (factor >= largest) first_divided = std::min(first_divided, length);
    if (factor <= 1.0 || factor >= largest) continue;
    blended.push_back({length, (1.0 / factor - 1.0 / largest) / (1.0 - 1.0 / largest)});
  }
  const auto fits = [&](double context, double high) {
    if (!(context >= 1.0 && context < 1e15 && high > 1.0)) return false;
    rope.original_context = std::llround(context);
    rope.high_freq_factor = rounded(high);
    return has_factors(rope, factors);
  };
  if (blended.empty()) {
    const double context = std::max(1.0, std::floor(first_divided));
    return fits(context, 2.0 * context / (last_kept + context)) ? std::optional(rope) : std::nullopt;
  }
  const auto [near, near_share] = blended.front();
  if (blended.size() == 1) {
    for (double context = 1.0; context < 1e9; context *= 2.0) {
      if (fits(context, 1.0 + (context / near - 1.0) / near_share)) return rope;
    }
    return std::nullopt;
  }
  const auto [far, far_share] = blended.back();
  const double slope = (near_share - far_share) / (1.0 / near - 1.0 / far),
               offset = slope / near - near_share;
  return fits(slope / offset, 1.0 + 1.0 / offset) ? std::optional(rope) : std::nullopt;
}

}  // namespace

std::vector<float> rope_factors(const Llama3Rope& rope) {
  const double context = static_cast<double>(rope.original_context), low = rope.low_freq_factor,
               high = rope.high_freq_factor;
  std::vector<float> factors(static_cast<size_t>(rope.head_dim / 2));
  for (size_t i = 0; i < factors.size(); ++i) {
    const double plain_share = std::clamp((context / wavelength(rope, i) - low) / (high - low), 0.0, 1.0);
    factors[i] = static_cast<float>(1.0 / ((1.0 - plain_share) / rope.factor + plain_share));
  }
  return factors;
}

std::optional<Llama3Rope> find_llama3_rope(const std::vector<float>& factors, double theta) {
  if (factors.empty()) return std::nullopt;
  Llama3Rope rope{.theta = theta, .head_dim = 2 * static_cast<int64_t>(factors.size())};
  rope.factor = static_cast<double>(*std::ranges::max_element(factors));
  if (!std::isfinite(rope.factor) || rope.factor <= 1.0) return std::nullopt;
  // The settings of the models of that name come first: few factors do not tell which settings they are of.
  return has_factors(rope, factors) ? rope : solve(factors, rope);
}

}  // namespace tessera::checkpoint
