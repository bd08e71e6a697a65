// plan_rows [--fit]: prints the planner's error on every row of tests/planner/, as tables of Markdown; --fit
// searches the constants that fit the calibration rows best, and prints them. Run it in the project's root.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "tests/planner/rows.h"

namespace tessera::planner {
namespace {

void print_table(const std::vector<Row>& rows) {
  std::printf("| row | tokens/s of a device | planned | error | memory, GiB | planned | error |\n");
  std::printf("|---|---|---|---|---|---|---|\n");
  for (const Row& row : rows) std::printf("%s\n", table_line(row).c_str());
  const auto within =
      std::count_if(rows.begin(), rows.end(), [](const Row& row) { return !row.misses_throughput; });
  std::printf("\nThroughput is as promised in %td of %zu rows.\n", within, rows.size());
}

double square(double x) { return x * x; }

// The sum of squared logarithms: too fast and too slow count alike.
double misfit(const std::vector<Row>& rows, const Constants& constants) {
  double sum = 0.0;
  for (const Row& row : rows) {
    const Prediction p = predict(row, constants);
    sum += square(std::log(p.tokens_per_s / row.tokens_per_s));
    if (row.memory_gib > 0) sum += square(std::log(p.memory_gib / row.memory_gib));
  }
  return sum;
}

// Changes one constant after another by a factor, as long as that helps, and then by a smaller one.
Constants fit(const std::vector<Row>& rows) {
  struct Range {
    double Constants::*value;
    double low, high;
  };
  constexpr std::array<Range, 7> kRanges = {{{&Constants::share_a100, 0.4, 0.95},
                                             {&Constants::share_h100, 0.4, 0.95},
                                             {&Constants::half_dim, 10, 1000},
                                             {&Constants::eager_traffic, 1, 30},
                                             {&Constants::compiled_traffic, 1, 30},
                                             {&Constants::eager_saved, 0.5, 4},
                                             {&Constants::compiled_saved, 0.5, 4}}};
  Constants best;
  double least = misfit(rows, best);
  for (double factor = 1.2; factor > 1.0005; factor = std::sqrt(factor)) {
    for (bool improves = true; improves;) {
      improves = false;
      for (const auto& [value, low, high] : kRanges) {
        for (const double change : {factor, 1.0 / factor}) {
          Constants next = best;
          next.*value = std::clamp(next.*value * change, low, high);
          const double now = misfit(rows, next);
          if (now >= least - 1e-12) continue;
          best = next;
          least = now;
          improves = true;
        }
      }
    }
  }
  std::printf("share of A100 %.3f, of H100 %.3f; half dim %.0f\n", best.share_a100, best.share_h100,
              best.half_dim);
  std::printf("eager: traffic %.2f, saved %.2f; compiled: traffic %.2f, saved %.2f\n", best.eager_traffic,
              best.eager_saved, best.compiled_traffic, best.compiled_saved);
  std::printf("mean error %.1f %%\n", 100.0 * std::sqrt(least / static_cast<double>(rows.size())));
  return best;
}

int run(bool fits) {
  const std::vector<Row> calibration = load_rows("tests/planner/calibration.yaml");
  if (fits) {
    fit(calibration);
    return 0;
  }
  std::printf("Fitted to:\n\n");
  print_table(calibration);
  std::printf("\nHeld out:\n\n");
  print_table(load_rows("tests/planner/held_out.yaml"));
  return 0;
}

}  // namespace
}  // namespace tessera::planner

int main(int argc, char** argv) {
  try {
    return tessera::planner::run(argc > 1 && std::strcmp(argv[1], "--fit") == 0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plan_rows: %s\n", error.what());
    return 2;
  }
}
