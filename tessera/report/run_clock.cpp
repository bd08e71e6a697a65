#include "tessera/report/run_clock.h"

#include <algorithm>

namespace tessera::report {

RunClock clock_of(const RunRecord& run) {
  RunClock clock;
  double stalls = 0.0, seconds = 0.0;
  const auto is_behind = [](const Points& points, double step, double value) {
    return points.empty() || (step > points.back().first && value >= points.back().second);
  };
  for (const Record& record : run.steps) {
    const auto step = static_cast<double>(record.step);
    const auto number = [&](const char* name) {
      const auto found = record.numbers.find(name);
      return found == record.numbers.end() ? nullptr : &found->second;
    };
    const double* tokens = number("tokens_seen");
    if (tokens != nullptr && is_behind(clock.tokens, step, *tokens)) clock.tokens.emplace_back(step, *tokens);
    if (const double* stall = number("save_stall_s")) stalls += *stall;
    const double* step_s = number("step_s");
    if (step_s == nullptr) continue;
    // A line has the mean time of the steps since the line before.
    const double before = clock.seconds.empty() ? 0.0 : clock.seconds.back().first;
    seconds += *step_s * std::max(step - before, 1.0);
    if (is_behind(clock.seconds, step, seconds + stalls)) clock.seconds.emplace_back(step, seconds + stalls);
  }
  return clock;
}

}  // namespace tessera::report
