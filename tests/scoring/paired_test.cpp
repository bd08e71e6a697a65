#include "tessera/scoring/paired.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"

namespace tessera::scoring {
namespace {

using ::testing::HasSubstr;

Json samples_of(const std::vector<double>& scores, const std::string& metric = "acc") {
  Json samples = Json::array();
  for (size_t i = 0; i < scores.size(); ++i) {
    samples.push_back({{"doc_id", i},
                       {"doc", {{"q", "question " + std::to_string(i)}}},
                       {"filter", "none"},
                       {"metrics", {metric}},
                       {metric, scores[i]}});
  }
  return samples;
}

// The expected values are those of scipy.stats.ttest_rel's mean and standard error for differences 1, 0, 1,
// -1, 1, 1: mean 0.5, sample standard deviation 0.8366600265, over the root of six documents.
TEST(PairedTest, IsTheMeanOfDifferencesAndItsError) {
  const Json first = {{"quiz", samples_of({1, 1, 1, 0, 1, 1})}, {"alone", samples_of({1, 0})}};
  const Json second = {{"quiz", samples_of({0, 1, 0, 1, 0, 0})}};
  const auto differences = paired_differences(first, second);
  ASSERT_EQ(differences.size(), 1u);
  const PairedDifference& one = differences.front();
  EXPECT_EQ(one.task, "quiz");
  EXPECT_EQ(one.metric, "acc");
  EXPECT_EQ(one.num_documents, 6);
  EXPECT_EQ(one.num_higher, 4);
  EXPECT_EQ(one.num_lower, 1);
  EXPECT_NEAR(one.first, 5.0 / 6, 1e-12);
  EXPECT_NEAR(one.second, 2.0 / 6, 1e-12);
  EXPECT_NEAR(one.difference, 0.5, 1e-12);
  EXPECT_NEAR(one.standard_error, 0.34156502553, 1e-10);
  EXPECT_NEAR(one.interval(), 0.66945514842, 1e-10);
  // z = 1.4638501094
  EXPECT_NEAR(one.p_value, 0.14323490752, 1e-9);
  EXPECT_THAT(table_of(differences), HasSubstr("+0.5000|±  0.6695"));
  EXPECT_EQ(json_of(differences).at(0).at("higher"), 4);
}

// Only documents that both runs have scored count: a run with --limit is compared on its own ones.
TEST(PairedTest, DocumentsArePairedByTheirIds) {
  const auto differences =
      paired_differences({{"t", samples_of({0, 0, 0})}}, {{"t", samples_of({0, 1, 0, 1, 1})}});
  EXPECT_EQ(differences.at(0).num_documents, 3);
  EXPECT_NEAR(differences.at(0).difference, -1.0 / 3, 1e-12);
  const auto same = paired_differences({{"t", samples_of({0, 1})}}, {{"t", samples_of({0, 1})}});
  EXPECT_EQ(same.at(0).p_value, 1.0);
  EXPECT_EQ(same.at(0).standard_error, 0.0);
}

TEST(PairedTest, ValuesWithWeightsAreCompared) {
  Json first = samples_of({0, 0}, "word_perplexity"), second = first;
  first[0]["word_perplexity"] = {-10.0, 4};
  first[1]["word_perplexity"] = {-12.0, 5};
  second[0]["word_perplexity"] = {-11.0, 4};
  second[1]["word_perplexity"] = {-14.0, 5};
  EXPECT_NEAR(paired_differences({{"t", first}}, {{"t", second}}).at(0).difference, 1.5, 1e-12);
}

TEST(PairedTest, WhatCannotBeComparedIsRefused) {
  const Json good = {{"t", samples_of({1, 0})}};
  Json other_document = good, no_id = good;
  other_document["t"][1]["doc"]["q"] = "another";
  no_id["t"][0].erase("doc_id");
  for (const auto& [first, second, what] :
       {std::tuple(good, other_document, "document 1 of task 't' differs"),
        {good, no_id, "has no doc_id"},
        {good, Json::array(), "have no samples"},
        {good, Json({{"t", 3}}), "are no list"},
        {good, Json({{"u", samples_of({1})}}), "in common"},
        {good, Json({{"t", samples_of({1}, "f1")}}), "in common"}}) {
    try {
      paired_differences(first, second);
      ADD_FAILURE() << what;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(what));
    }
  }
}

}  // namespace
}  // namespace tessera::scoring
