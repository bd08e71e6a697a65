#include "tessera/core/classification.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>

namespace tessera {
namespace {

std::map<std::string, double> metrics_of(const Classification& classification,
                                         std::vector<double> statistics) {
  EXPECT_EQ(std::ssize(statistics), num_class_statistics(classification));
  std::map<std::string, double> metrics;
  for (const auto& [name, value] : class_metrics(classification, statistics)) metrics[name] = value;
  return metrics;
}

// The values are those of scikit-learn 1.9 for rows with these counts.
TEST(ClassMetrics, TwoClasses) {
  auto found = metrics_of({ProblemType::SingleLabel, {"no", "yes"}}, {40, 10, 5, 45});
  EXPECT_NEAR(found["accuracy"], 0.85, 1e-12);
  EXPECT_NEAR(found["f1"], 0.8571428571428571, 1e-12);
  EXPECT_NEAR(found["matthews_correlation"], 0.7035264706814485, 1e-12);
}

TEST(ClassMetrics, SeveralClasses) {
  auto found = metrics_of({ProblemType::SingleLabel, {"a", "b", "c"}}, {5, 1, 0, 2, 3, 1, 0, 0, 4});
  EXPECT_NEAR(found["accuracy"], 0.75, 1e-12);
  EXPECT_NEAR(found["f1"], (10.0 / 13 + 6.0 / 10 + 8.0 / 9) / 3, 1e-12);
  EXPECT_NEAR(found["matthews_correlation"], (16.0 * 12 - 86) / std::sqrt((256.0 - 90) * (256.0 - 88)),
              1e-12);
}

TEST(ClassMetrics, NothingButOneClassIsNoCorrelation) {
  auto found = metrics_of({ProblemType::SingleLabel, {"no", "yes"}}, {0, 0, 0, 3});
  EXPECT_EQ(found["accuracy"], 1.0);
  EXPECT_EQ(found["matthews_correlation"], 0.0);
}

TEST(ClassMetrics, SeveralLabels) {
  // Four rows; the first label: 2 true and 1 false positives; the second: 1 true positive, 2 false negatives.
  auto found = metrics_of({ProblemType::MultiLabel, {"a", "b"}}, {2, 1, 0, 1, 1, 0, 2, 1, 1});
  EXPECT_NEAR(found["accuracy"], 0.25, 1e-12);
  EXPECT_NEAR(found["f1"], 6.0 / 9.0, 1e-12);
  EXPECT_NEAR(found["f1_macro"], (0.8 + 0.5) / 2, 1e-12);
}

TEST(ClassMetrics, Numbers) {
  const double p[] = {1.0, 2.0, 4.0}, t[] = {1.5, 2.0, 3.0};
  std::vector<double> sums(7);
  for (int i = 0; i < 3; ++i) {
    const double row[] = {
        1.0, p[i], t[i], p[i] * p[i], t[i] * t[i], p[i] * t[i], (p[i] - t[i]) * (p[i] - t[i])};
    for (size_t j = 0; j < 7; ++j) sums[j] += row[j];
  }
  auto found = metrics_of({ProblemType::Regression, {"score"}}, sums);
  EXPECT_NEAR(found["mse"], 1.25 / 3, 1e-12);
  EXPECT_NEAR(found["pearson"], 1.0 * (17.5 - 7 * 6.5 / 3) / std::sqrt((21 - 49.0 / 3) * (15.25 - 42.25 / 3)),
              1e-12);
}

}  // namespace
}  // namespace tessera
