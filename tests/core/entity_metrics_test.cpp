#include "tessera/core/entity_metrics.h"

#include <map>
#include <sstream>

#include <gtest/gtest.h>

#include "tessera/core/classification.h"

namespace tessera {
namespace {

const std::vector<std::string> kIob = {"O", "B-x", "I-x", "B-y", "I-y"},
                               kIobes = {"O", "B-x", "I-x", "E-x", "S-x"};

std::map<std::string, double> metrics_of(const std::vector<std::string>& labels, const std::string& tags,
                                         const std::string& predicted) {
  const Classification classes{ProblemType::Tokens, labels};
  const EntityTags entities(labels);
  std::vector<double> sums(EntityTags::kStatistics);
  EXPECT_EQ(num_class_statistics(classes), std::ssize(sums));
  // Each letter is the number of a tag; texts are apart by a blank.
  std::istringstream texts(tags), found(predicted);
  for (std::string text, of_text; texts >> text && found >> of_text;) {
    std::vector<int64_t> are, were;
    for (const char c : text) are.push_back(c - '0');
    for (const char c : of_text) were.push_back(c - '0');
    entities.add_row(are, were, sums);
  }
  std::map<std::string, double> metrics;
  for (const auto& [name, value] : class_metrics(classes, sums)) metrics[name] = value;
  return metrics;
}

struct Case {
  const std::vector<std::string>& labels;
  const char *tags, *predicted;
  double accuracy, precision, recall, f1, f1_strict;
};

// The values are those of seqeval 1.2.2; f1_strict is that of mode="strict", scheme=IOB2.
TEST(EntityMetrics, AreThoseOfSeqeval) {
  const Case cases[] = {
      {kIob, "0120 340", "0120 340", 1.0, 1.0, 1.0, 1.0, 1.0},
      {kIob, "012230 1", "022230 3", 0.7142857142857143, 0.6666666666666666, 0.6666666666666666,
       0.6666666666666666, 0.4},
      {kIob, "0112 340", "0122 344", 0.7142857142857143, 0.0, 0.0, 0.0, 0.0},
      {kIob, "000", "000", 1.0, 0.0, 0.0, 0.0, 0.0},
      {kIob, "0204 412", "1204 022", 0.5714285714285714, 0.6666666666666666, 0.5, 0.5714285714285715, 0.0},
      {kIob, "201223202042 2003224 22340030422", "000223233031 0003224 42340430442", 0.6666666666666666,
       0.5294117647058824, 0.5625, 0.5454545454545455, 0.6153846153846154},
      {kIobes, "342110 2432 1402", "040110 2422 2402", 0.7142857142857143, 0.8888888888888888,
       0.6666666666666666, 0.761904761904762, 0.0},
      {kIob, "121030411 04222422 4232024212333", "124034411 04224322 4232024410013", 0.7333333333333333,
       0.631578947368421, 0.5714285714285714, 0.6, 0.5263157894736842},
      {kIob, "4101032330021 34024400 33022104", "4104030230031 34014443 31024404", 0.6551724137931034,
       0.5294117647058824, 0.5294117647058824, 0.5294117647058824, 0.6},
      {kIob, "104000432022 023 0210", "104400432020 010 0211", 0.7368421052631579, 0.7, 0.7, 0.7,
       0.6666666666666665},
      {kIob, "222021440404 00002 430", "222021443403 40003 430", 0.8, 0.7, 0.7777777777777778,
       0.7368421052631577, 0.5714285714285715},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.tags) + " as " + c.predicted);
    auto found = metrics_of(c.labels, c.tags, c.predicted);
    EXPECT_NEAR(found["accuracy"], c.accuracy, 1e-12);
    EXPECT_NEAR(found["precision"], c.precision, 1e-12);
    EXPECT_NEAR(found["recall"], c.recall, 1e-12);
    EXPECT_NEAR(found["f1"], c.f1, 1e-12);
    EXPECT_EQ(found.contains("f1_strict"), &c.labels == &kIob) << "IOB2 has no E and S";
    if (&c.labels != &kIob) continue;
    EXPECT_NEAR(found["f1_strict"], c.f1_strict, 1e-12);
  }
}

TEST(EntityMetrics, OtherLabelsAreThoseOfTokens) {
  EXPECT_TRUE(EntityTags::are_tags(kIob));
  for (const std::vector<std::string>& labels :
       {std::vector<std::string>{"NOUN", "VERB"}, {"O", "I-x"}, {"O", "B-"}, {"B-x", "X-y"}, {"O"}}) {
    EXPECT_FALSE(EntityTags::are_tags(labels)) << labels.front();
  }
  const Classification words{ProblemType::Tokens, {"NOUN", "VERB"}};
  EXPECT_EQ(num_class_statistics(words), 4);
  EXPECT_EQ(class_metrics(words, std::vector<double>{3, 1, 0, 4})[0].second, 7.0 / 8);
}

}  // namespace
}  // namespace tessera
