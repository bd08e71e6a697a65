// Tests the metrics of text and classes against tests/reference/data/text_metrics.json.
#include "tessera/scoring/text_metrics.h"

#include <gtest/gtest.h>

#include "tessera/scoring/edit_rate.h"
#include "tessera/scoring/metrics.h"

#include "tests/scoring/task_reference.h"

namespace tessera::scoring {
namespace {

Json reference() {
  return Json::parse(std::ifstream(testing::source_folder() + "/tests/reference/data/text_metrics.json"));
}

MetricValue of_texts(const std::string& metric, const std::string& answer, const std::string& target) {
  MetricValue value;
  value.counts = metric == "bleu"  ? bleu_counts(answer, target)
                 : metric == "ter" ? ter_counts(answer, target)
                                   : chrf_counts(answer, target, metric == "chrf++");
  value.value = metric == "bleu"  ? bleu_score(value.counts)
                : metric == "ter" ? ter_score(value.counts)
                                  : chrf_score(value.counts);
  return value;
}

TEST(TextMetricsTest, AreThoseOfSacrebleu) {
  const Json expected = reference();
  for (const std::string metric : {"bleu", "chrf", "chrf++", "ter"}) {
    SCOPED_TRACE(metric);
    std::vector<MetricValue> values;
    for (size_t i = 0; i < expected["texts"].size(); ++i) {
      const Json& pair = expected["texts"][i];
      values.push_back(of_texts(metric, pair[1], pair[0]));
      EXPECT_NEAR(values.back().value, expected["each " + metric][i].get<double>(), 1e-9) << pair.dump();
    }
    const Json& scores = expected["scores"][metric];
    EXPECT_NEAR(aggregate(metric, values), scores[0].get<double>(), 1e-9);
    EXPECT_NEAR(standard_error(metric, values, 200).value(), scores[1].get<double>(), 1e-9);
  }
}

TEST(TextMetricsTest, ClassesAreScoredAsInScikitLearn) {
  const Json expected = reference();
  for (const auto& [name, metric, pairs] : {std::tuple("f1", "f1", "choices"),
                                            {"mcc", "matthews_corrcoef", "choices"},
                                            {"mcc of classes", "matthews_corrcoef", "classes"}}) {
    SCOPED_TRACE(name);
    std::vector<MetricValue> values;
    for (const Json& pair : expected[pairs]) values.push_back({pair[1].get<double>(), pair[0].get<double>()});
    EXPECT_NEAR(aggregate(metric, values), expected["scores"][name][0].get<double>(), 1e-12);
    EXPECT_NEAR(standard_error(metric, values, 200).value(), expected["scores"][name][1].get<double>(),
                1e-12);
  }
  // One class alone has no correlation, and a class that nobody chose no f1.
  EXPECT_EQ(aggregate("matthews_corrcoef", std::vector<MetricValue>{{0, 0}, {0, 0}}), 0.0);
  EXPECT_EQ(aggregate("f1", std::vector<MetricValue>{{0, 0}, {0, 1}}), 0.0);
}

TEST(TextMetricsTest, NothingScoresNothing) {
  EXPECT_EQ(bleu_score(bleu_counts("", "a b c d")), 0.0);
  EXPECT_EQ(bleu_score(bleu_counts("a b", "a b")), 0.0);  // no n-grams of 3 words
  EXPECT_EQ(chrf_score(chrf_counts("", "", true)), 0.0);
  EXPECT_EQ(chrf_score(chrf_counts("same text", "same text", false)), 100.0);
  EXPECT_EQ(ter_score(ter_counts("", "")), 0.0);
  EXPECT_EQ(ter_score(ter_counts("a b", "")), 100.0);
  EXPECT_EQ(ter_score(ter_counts("", "a b")), 100.0);
}

}  // namespace
}  // namespace tessera::scoring
