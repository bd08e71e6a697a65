#include "tessera/planner/rate_advice.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace tessera::planner {
namespace {

// Share of the points that the first steps are, and over which a slope is taken on either side.
size_t tenth(size_t count) { return std::max<size_t>(2, count / 10); }

// Returns the standard deviation of one loss around its neighbours, which a few outliers do not change.
double noise_of(std::span<const RatePoint> points) {
  std::vector<double> steps;
  for (size_t i = 1; i < points.size(); ++i) steps.push_back(std::abs(points[i].loss - points[i - 1].loss));
  if (steps.empty()) return 0.0;
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  std::nth_element(steps.begin(), middle, steps.end());
  constexpr double kMedianOfNormal = 0.6745;
  return *middle / kMedianOfNormal / std::sqrt(2.0);
}

// Returns the place where the smoothed loss falls fastest per factor of the rate, before `end`.
std::optional<size_t> steepest(const std::vector<RatePoint>& points, const std::vector<double>& smoothed,
                               size_t end) {
  const size_t reach = tenth(smoothed.size());
  std::optional<size_t> place;
  double least = 0.0;
  for (size_t i = reach; i + reach < end; ++i) {
    const double slope = (smoothed[i + reach] - smoothed[i - reach]) /
                         std::log(points[i + reach].rate / points[i - reach].rate);
    if (slope < least) {
      least = slope;
      place = i;
    }
  }
  return place;
}

}  // namespace

RateAdvice advise_rate(const std::vector<RatePoint>& points, double smoothing) {
  RateAdvice advice;
  double mean = 0.0, weight = 0.0;
  for (const RatePoint& point : points) {
    mean = smoothing * mean + (1.0 - smoothing) * point.loss;
    weight = smoothing * weight + (1.0 - smoothing);
    if (!std::isfinite(mean)) {
      advice.divergence_rate = point.rate;
      break;
    }
    advice.smoothed.push_back(mean / weight);
  }
  const std::vector<double>& smoothed = advice.smoothed;
  if (smoothed.empty()) return advice;
  // The smoothed loss has come to its level after the first tenth.
  const size_t begin = std::min(tenth(smoothed.size()), smoothed.size()) - 1;
  const double level = smoothed[begin];
  const auto lowest = std::min_element(smoothed.begin() + static_cast<std::ptrdiff_t>(begin), smoothed.end());
  const auto best = static_cast<size_t>(lowest - smoothed.begin());
  advice.best_rate = points[best].rate;
  const double noise =
      noise_of(std::span(points).first(best + 1)) * std::sqrt((1.0 - smoothing) / (1.0 + smoothing));
  const double most = level + std::max(0.15 * std::abs(level), 3.0 * noise);
  size_t end = smoothed.size();
  while (end > 0 && smoothed[end - 1] > most) --end;
  if (end < smoothed.size()) advice.divergence_rate = points[end].rate;
  if (level - *lowest <= 3.0 * noise) return advice;
  advice.tenth_of_best = 0.1 * advice.best_rate;
  if (const auto place = steepest(points, smoothed, best + 1)) advice.steepest_rate = points[*place].rate;
  return advice;
}

}  // namespace tessera::planner
