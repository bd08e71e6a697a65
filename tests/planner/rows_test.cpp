// Tests the planner against published measurements: tests/planner/calibration.yaml and held_out.yaml.
#include "tests/planner/rows.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "tests/testing/paths.h"

namespace tessera::planner {
namespace {

std::vector<Row> rows_of(const std::string& name) {
  return load_rows(testing::source_folder() + "/tests/planner/" + name + ".yaml");
}

// The measurement itself decides, not only its name.
TEST(PlannedRowsTest, NoRowIsInBothSets) {
  using Identity = std::tuple<std::string, double, double, double, int64_t, int>;
  const auto identity = [](const Row& row) {
    return Identity{row.cluster.device.name,       row.tokens_per_s, row.work.parameters(),
                    row.work.flops_per_token(1.0), row.job.sequence, static_cast<int>(row.choice.precision)};
  };
  std::set<std::string> names;
  std::set<Identity> fitted;
  for (const Row& row : rows_of("calibration")) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_TRUE(fitted.insert(identity(row)).second) << row.name;
  }
  const std::vector<Row> held_out = rows_of("held_out");
  EXPECT_GE(held_out.size(), 40u);
  for (const Row& row : held_out) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(fitted.contains(identity(row))) << row.name;
  }
}

// A held-out row is within 15 % (25 % on a class of devices that no row of the fit has) and its memory within
// 10 %, or its file says that it is missed. A row that is no longer missed must lose the mark.
TEST(PlannedRowsTest, ErrorsAreAsPublished) {
  for (const Row& row : rows_of("held_out")) {
    const Prediction p = predict(row);
    const double error = error_percent(p.tokens_per_s, row.tokens_per_s);
    const double memory = row.memory_gib > 0 ? error_percent(p.memory_gib, row.memory_gib) : 0.0;
    std::printf("%+6.1f %%  memory %+6.1f %%  %s\n", error, memory, row.name.c_str());
    EXPECT_EQ(std::abs(error) > (row.is_new_device ? 25.0 : 15.0), row.misses_throughput)
        << row.name << error;
    EXPECT_EQ(std::abs(memory) > 10.0, row.misses_memory) << row.name << memory;
  }
}

// benchmarks/plan_table --write brings the page up to date.
TEST(PlannedRowsTest, ThePageHasEveryRow) {
  std::ifstream file(testing::source_folder() + "/docs/planner.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  for (const char* const name : {"calibration", "held_out"}) {
    for (const Row& row : rows_of(name))
      EXPECT_NE(page.find("\n" + table_line(row) + "\n"), std::string::npos) << table_line(row);
  }
}

TEST(PlannedRowsTest, TheFitHolds) {
  for (const Row& row : rows_of("calibration")) {
    const Prediction p = predict(row);
    EXPECT_NEAR(p.tokens_per_s, row.tokens_per_s, 0.10 * row.tokens_per_s) << row.name;
    if (row.memory_gib == 0.0) continue;
    EXPECT_NEAR(p.memory_gib, row.memory_gib, 0.05 * row.memory_gib) << row.name;
  }
}

}  // namespace
}  // namespace tessera::planner
