// Reads a learning-rate range test: losses of a short training whose rate rises step by step.
#pragma once

#include <optional>
#include <vector>

namespace tessera::planner {

// A step of the test: its learning rate, above 0, and the loss before its update, which may be NaN.
struct RatePoint {
  double rate = 0.0, loss = 0.0;
};

struct RateAdvice {
  std::vector<double> smoothed;  // losses of the points, up to the first that is no number
  double best_rate = 0.0;        // of the lowest smoothed loss
  // The rate at which the smoothed loss falls fastest per factor of the rate (Smith, "Cyclical Learning Rates
  // for Training Neural Networks", 2017, section 3.3, as fastai reads the curve), and a tenth of best_rate:
  // two usual choices of a peak. Nothing if the loss falls by no more than chance explains.
  std::optional<double> steepest_rate, tenth_of_best;
  // The rate from which on the smoothed loss stays clearly above that of the first steps, or is no number;
  // nothing if the test did not come so far.
  std::optional<double> divergence_rate;
};

// Losses are smoothed by an exponential mean with the weight `smoothing` for the past, as Adam corrects its
// averages at the start. The points lie in the order of their steps, with rising rates. What chance explains
// comes from the differences between neighbouring losses.
RateAdvice advise_rate(const std::vector<RatePoint>& points, double smoothing = 0.9);

}  // namespace tessera::planner
