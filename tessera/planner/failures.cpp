#include "tessera/planner/failures.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace tessera::planner {

double young_interval(const Failures& failures) { return std::sqrt(2.0 * failures.save_s * failures.mean_s); }

double daly_interval(const Failures& failures) {
  if (failures.save_s >= 2.0 * failures.mean_s) return failures.mean_s;
  const double ratio = failures.save_s / (2.0 * failures.mean_s);
  return young_interval(failures) * (1.0 + std::sqrt(ratio) / 3.0 + ratio / 9.0) - failures.save_s;
}

double useful_share(const Failures& failures, double interval_s) {
  const double mean = failures.mean_s;
  return interval_s /
         (mean * std::exp(failures.restart_s / mean) * std::expm1((interval_s + failures.save_s) / mean));
}

std::vector<double> play_runs(const Failures& failures, double interval_s, double work_s, int64_t runs,
                              uint64_t seed) {
  std::mt19937_64 bits(seed);
  std::exponential_distribution<double> time_to_failure(1.0 / failures.mean_s);
  std::vector<double> ends;
  for (int64_t run = 0; run < runs; ++run) {
    double now = 0.0, done = 0.0, failure = time_to_failure(bits);
    bool is_down = false;
    while (done < work_s) {
      // The last piece of work needs no checkpoint behind it.
      const double work = std::min(interval_s, work_s - done);
      const double needed =
          (is_down ? failures.restart_s : 0.0) + work + (done + work < work_s ? failures.save_s : 0.0);
      if (now + needed <= failure) {
        now += needed;
        done += work;
        is_down = false;
      } else {
        now = failure;
        failure += time_to_failure(bits);
        is_down = true;
      }
    }
    ends.push_back(now);
  }
  std::ranges::sort(ends);
  return ends;
}

}  // namespace tessera::planner
