#include "tessera/report/points.h"

#include <algorithm>
#include <cmath>

namespace tessera::report {

Points thin(const Points& points, size_t count) {
  if (points.size() <= count || count < 2) return points;
  Points kept;
  const size_t num_stretches = count / 2;
  const auto by_value = [](const auto& a, const auto& b) { return a.second < b.second; };
  for (size_t i = 0; i < num_stretches; ++i) {
    const auto begin = points.begin() + static_cast<ptrdiff_t>(points.size() * i / num_stretches);
    const auto end = points.begin() + static_cast<ptrdiff_t>(points.size() * (i + 1) / num_stretches);
    const auto [low, high] = std::minmax_element(begin, end, by_value);
    kept.push_back(*std::min(low, high));
    if (low != high) kept.push_back(*std::max(low, high));
  }
  return kept;
}

Points sample(const Points& points, size_t count) {
  if (points.size() <= count || count == 0) return points;
  const size_t stride = (points.size() + count - 1) / count;
  Points kept;
  for (size_t i = 0; i < points.size(); i += stride) kept.push_back(points[i]);
  if (kept.back() != points.back()) kept.push_back(points.back());
  return kept;
}

Points average(const Points& points, size_t count) {
  const size_t stride = (points.size() + count - 1) / count;
  Points means;
  for (size_t begin = 0; begin < points.size(); begin += stride) {
    const size_t end = std::min(begin + stride, points.size());
    double sum = 0.0;
    for (size_t i = begin; i < end; ++i) sum += points[i].second;
    means.emplace_back(points[end - 1].first, sum / static_cast<double>(end - begin));
  }
  return means;
}

Points smooth(const Points& points, double half_life) {
  const double keep = std::exp2(-1.0 / half_life);
  Points means;
  double sum = 0.0, weight = 0.0;
  for (const auto& [step, value] : points) {
    sum = keep * sum + value;
    weight = keep * weight + 1.0;
    means.emplace_back(step, sum / weight);
  }
  return means;
}

}  // namespace tessera::report
