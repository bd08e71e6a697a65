#include "tessera/planner/seeded_rates.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tessera/planner/step_time.h"

namespace tessera::planner {
namespace {

using Factors = std::array<double, 3>;  // of products, memory, links

constexpr double kMostChange = 5.0;
// A change of a rate costs a little, compared with the errors that it removes, so rates that no step depends
// on stay as they are.
constexpr double kPull = 1e-4;

double square(double x) { return x * x; }

Cluster changed(const Cluster& cluster, const Factors& by) {
  Cluster next = cluster;
  Device& device = next.device;
  for (double* const rate :
       {&device.fp32_tflops, &device.bf16_tflops, &device.fp16_tflops, &device.fp8_tflops})
    *rate *= by[0];
  device.memory_gb_s *= by[1];
  device.node_gb_s *= by[2];
  return next;
}

}  // namespace

SeededRates seeded_rates(const ModelWork& work, const Cluster& cluster, const Job& job,
                         std::span<const MeasuredStep> steps, const Software& software) {
  const auto error = [&](const Factors& by) {
    const Cluster next = changed(cluster, by);
    double sum = 0.0;
    for (const MeasuredStep& step : steps)
      sum += square(
          std::log(step_time(work, next, job, step.choice, software).tokens_per_s() / step.tokens_per_s));
    return std::sqrt(sum / static_cast<double>(steps.size()));
  };
  const auto cost = [&](const Factors& by) {
    double pull = 0.0;
    for (const double factor : by) pull += square(std::log(factor));
    return square(error(by)) + kPull * pull;
  };
  // One rate after another changes by a factor, as long as that helps, and then by a smaller one.
  Factors best = {1.0, 1.0, 1.0};
  double least = cost(best);
  for (double factor = 1.3; factor > 1.002; factor = std::sqrt(factor)) {
    for (bool improves = true; improves;) {
      improves = false;
      for (size_t i = 0; i < best.size(); ++i) {
        for (const double change : {factor, 1.0 / factor}) {
          Factors next = best;
          next[i] = std::clamp(next[i] * change, 1.0 / kMostChange, kMostChange);
          const double now = cost(next);
          if (now >= least - 1e-12) continue;
          best = next;
          least = now;
          improves = true;
        }
      }
    }
  }
  return {changed(cluster, best), best[0], best[1], best[2], error({1.0, 1.0, 1.0}), error(best)};
}

}  // namespace tessera::planner
