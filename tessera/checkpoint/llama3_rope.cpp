#include "tessera/checkpoint/llama3_rope.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tessera::checkpoint {
namespace {

// Divisors were computed in float32, from powers of theta in float32. Their errors grow with them.
constexpr double kTolerance = 3e-4;
constexpr double kRounding = 2e-5;    // error of a length that is found from them
constexpr double kUsualSpread = 4.0;  // high_freq_factor / low_freq_factor of all published models

struct Point {
  double frequency, divisor;
  double wave() const { return 2.0 * M_PI / frequency; }
};
using Points = std::vector<Point>;

bool gives(const Llama3Rope& rule, const Points& points) {
  return rule.high_freq_factor > rule.low_freq_factor && std::ranges::all_of(points, [&](const Point& point) {
           return std::abs(llama3_divisor(rule, point.frequency) - point.divisor) <=
                  kTolerance * point.divisor;
         });
}

// Returns how much of the frequency of a point between the two ends is kept, from 0 to 1.
double kept(const Point& point, double factor) {
  return (1.0 / point.divisor - 1.0 / factor) / (1.0 - 1.0 / factor);
}

// Returns the wave lengths from which on frequencies are scaled (short) and from which on they are divided by
// `factor` (long). The kept part grows with the frequency on a straight line, which two points determine.
// Fewer leave a choice.
std::pair<double, double> ends_of(const Points& points, double factor) {
  Points between;
  double shortest = 0.0, longest = 0.0;  // of the waves that stay, and of those divided by `factor`
  for (const Point& point : points) {
    if (point.divisor < 1.0 + kTolerance) {
      shortest = point.wave();
    } else if (point.divisor < factor * (1.0 - kTolerance)) {
      between.push_back(point);
    } else if (longest == 0.0) {
      longest = point.wave();
    }
  }
  if (between.empty()) {
    if (shortest == 0.0) shortest = longest / kUsualSpread;
    const double step = std::cbrt(longest / shortest);
    return {shortest * step, longest / step};
  }
  const Point &first = between.front(), &last = between.back();
  double spread = kUsualSpread - 1.0;
  if (between.size() == 1) {
    // The ends may not reach beyond the waves next to the one between them.
    const double part = kept(first, factor), wave = first.wave();
    if (shortest > part * wave) spread = std::min(spread, (wave - shortest) / (shortest - part * wave));
    if (longest > wave) spread = std::min(spread, (longest - wave) / (part * wave));
  } else {
    const double slope = (kept(first, factor) - kept(last, factor)) / (first.frequency - last.frequency);
    spread = 1.0 / (slope * last.frequency - kept(last, factor));
  }
  const double long_wave = last.wave() * (1.0 + spread * kept(last, factor));
  return {long_wave / (1.0 + spread), long_wave};
}

// Returns the plain number near `value` if the two differ only by rounding; otherwise `value`.
double plain(double value, double near) {
  return std::abs(value - near) <= kRounding * std::abs(value) ? near : value;
}

// Returns the rule with these ends. `rounds` takes plain numbers where only roundings lie between.
Llama3Rope rule_between(double factor, double short_wave, double long_wave, bool rounds) {
  Llama3Rope rule;
  rule.factor = factor;
  rule.original_length = static_cast<int64_t>(std::clamp(std::round(long_wave), 1.0, 1e9));
  const auto length = static_cast<double>(rule.original_length);
  rule.low_freq_factor = length / long_wave;
  rule.high_freq_factor = length / short_wave;
  if (!rounds) return rule;
  rule.low_freq_factor = plain(rule.low_freq_factor, 1.0);
  rule.high_freq_factor = plain(rule.high_freq_factor, std::round(rule.high_freq_factor * 1e3) / 1e3);
  return rule;
}

// Returns the factor of the usual rule that gives the last divisor.
double usual_factor(const Point& last) {
  const Llama3Rope usual;
  const auto length = static_cast<double>(usual.original_length);
  const double turns = length / last.wave();
  if (turns <= usual.low_freq_factor) return last.divisor;
  const double smooth = (turns - usual.low_freq_factor) / (usual.high_freq_factor - usual.low_freq_factor);
  return std::round((1.0 - smooth) / (1.0 / last.divisor - smooth) * 1e3) / 1e3;
}

}  // namespace

double llama3_divisor(const Llama3Rope& rule, double frequency) {
  const double turns = static_cast<double>(rule.original_length) * frequency / (2.0 * M_PI);
  if (turns > rule.high_freq_factor) return 1.0;
  if (turns < rule.low_freq_factor) return rule.factor;
  const double smooth = (turns - rule.low_freq_factor) / (rule.high_freq_factor - rule.low_freq_factor);
  return 1.0 / ((1.0 - smooth) / rule.factor + smooth);
}

std::vector<float> llama3_divisors(const Llama3Rope& rule, double theta, int64_t head_dim) {
  std::vector<float> divisors;
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    divisors.push_back(static_cast<float>(llama3_divisor(rule, std::pow(theta, exponent))));
  }
  return divisors;
}

std::optional<Llama3Rope> fit_llama3_rope(std::span<const float> divisors, double theta) {
  Points points;
  for (size_t i = 0; i < divisors.size(); ++i) {
    const double exponent = -static_cast<double>(i) / static_cast<double>(divisors.size());
    points.push_back({std::pow(theta, exponent), static_cast<double>(divisors[i])});
    if (!(points.back().divisor > 0.0) || !std::isfinite(points.back().divisor)) return std::nullopt;
  }
  if (points.empty()) return std::nullopt;
  Llama3Rope usual;
  usual.factor = usual_factor(points.back());
  if (std::isfinite(usual.factor) && usual.factor > 0.0 && gives(usual, points)) return usual;
  const double factor = points.back().divisor;
  const auto [short_wave, long_wave] = ends_of(points, factor);
  if (!(short_wave > 0.0 && long_wave > short_wave && std::isfinite(long_wave))) return std::nullopt;
  for (const bool rounds : {true, false}) {
    const Llama3Rope rule = rule_between(factor, short_wave, long_wave, rounds);
    if (gives(rule, points)) return rule;
  }
  return std::nullopt;
}

}  // namespace tessera::checkpoint
