// Tests that tokens which are chosen on the device of their logits are those that the host chooses.
#include "tessera/generation/draw_tokens.h"

#include <memory>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/device/device_graph.h"

#include "tests/generation/draw_cases.h"
#include "tests/testing/fake_device.h"

namespace tessera::generation {
namespace {

namespace fake = testing::fake_device;

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};

TEST(DrawTokens, AreThoseOfTheHost) {
  testing::Random random;
  int64_t drawn = 0, refused = 0;
  for (int i = 0; i < 400 && !::testing::Test::HasFailure(); ++i) {
    const DrawCase asked = random_case(random, kTypes[i % 4]);
    expect_wanted(asked.chosen(at::kCPU), asked);
    for (int64_t row = 0; row < asked.logits.size(0); ++row) ++(asked.want(row) ? drawn : refused);
  }
  EXPECT_GT(drawn, 200);
  EXPECT_GT(refused, 20);
}

// The options of other rows do not change a row, although their work is done for all rows.
TEST(DrawTokens, OfARowKnowNothingOfTheOthers) {
  testing::Random random;
  for (int i = 0; i < 100; ++i) {
    const DrawCase asked = random_case(random, kTypes[i % 4]);
    const at::Tensor together = asked.chosen(at::kCPU);
    for (int64_t row = 0; row < asked.logits.size(0); ++row)
      ASSERT_TRUE(at::allclose(asked.row(row).chosen(at::kCPU), together.narrow(1, row, 1), 0, 0,
                               /*equal_nan=*/true) ||
                  !asked.want(row));
  }
}

TEST(DrawTokens, ANumberOnAnEdgeIsTheNextTokens) {
  const std::pair<double, int64_t> wanted[] = {{0.0, 1}, {0.25, 2}, {0.5, 4}, {0.75, 5}, {1.0 - 0x1p-53, 5}};
  for (const bool cuts : {false, true}) {
    for (const auto& [number, token] : wanted) {
      const at::Tensor logits =
          at::tensor({-INFINITY, 1.0, 1.0, -INFINITY, 1.0, 1.0, -INFINITY}).unsqueeze(0);
      auto values = draw_values({{.temperature = 1.0}, 0});
      values.back() = number;
      const at::Tensor told = at::tensor(at::ArrayRef<double>(values), at::kDouble).unsqueeze(1);
      const at::Tensor chosen = draw_tokens(logits, told, {.draws = true, .cuts = cuts});
      EXPECT_EQ(chosen[0].item<double>(), static_cast<double>(token)) << number << ", cuts " << cuts;
      EXPECT_EQ(chosen[1].item<double>(), 1.0);
    }
  }
}

TEST(DrawTokens, ManyFollowTheProbabilities) {
  const at::Tensor logits = at::log(at::tensor({0.1, 0.6, 0.05, 0.25}, at::kDouble)).repeat({4000, 1});
  const auto counts = [&](SamplingOptions options) {
    DrawCase asked{logits, {}, {}};
    for (uint64_t i = 0; i < 4000; ++i) asked.draws.push_back({options, i});
    return at::bincount(asked.chosen(at::kCPU)[0].to(at::kLong), {}, 4);
  };
  const auto of = [](const at::Tensor& counted, int64_t token) { return counted[token].item<int64_t>(); };
  const at::Tensor all = counts({.temperature = 1.0, .seed = 11});
  EXPECT_NEAR(of(all, 1), 2400, 120);
  EXPECT_NEAR(of(all, 3), 1000, 110);
  EXPECT_NEAR(of(all, 0), 400, 80);
  EXPECT_NEAR(of(all, 2), 200, 60);
  const at::Tensor cut = counts({.temperature = 1.0, .top_p = 0.7, .top_k = 3, .seed = 11});
  EXPECT_EQ(of(cut, 0) + of(cut, 2), 0);
  EXPECT_NEAR(of(cut, 1), 4000 * 0.6 / 0.85, 120);
}

// The draw can be recorded, and replayed with other numbers each time. The host waits for nothing.
TEST(DrawTokens, CanBeRecordedAndWaitForNothing) {
  fake::configure({.seed = 3, .longest_delay_us = 60});
  testing::Random random;
  const at::Device there = fake::device(0);
  const DrawWork everything{.draws = true, .cuts = true, .penalizes = true};
  constexpr int64_t kRows = 3, kVocabulary = 70;
  const auto options = at::TensorOptions(there);
  const at::Tensor logits = at::zeros({kRows, kVocabulary}, options.dtype(at::kFloat)),
                   values = at::zeros({kDrawValues, kRows}, options.dtype(at::kDouble)),
                   occurred = at::zeros({kRows, kVocabulary}, options.dtype(at::kBool));
  at::Tensor chosen;
  const auto work = [&] {
    chosen = draw_tokens(change_logits(logits, {}, values, occurred, everything), values, everything);
  };
  fake::synchronize();
  const int64_t waits = fake::waits();
  work();
  const auto graph = DeviceGraph::record(there, work);
  EXPECT_EQ(fake::waits(), waits);
  ASSERT_NE(graph, nullptr);
  for (int i = 0; i < 60;) {
    const DrawCase asked = random_case(random, at::kFloat);
    if (asked.logits.size(0) < kRows || asked.logits.size(1) < kVocabulary) continue;
    ++i;
    DrawCase part{asked.logits.narrow(0, 0, kRows).narrow(1, 0, kVocabulary).contiguous(),
                  {asked.draws.begin(), asked.draws.begin() + kRows},
                  {asked.occurred.begin(), asked.occurred.begin() + kRows}};
    for (auto& ids : part.occurred) std::erase_if(ids, [](int64_t id) { return id >= kVocabulary; });
    // Biases are as many as they are, so adding them is not recorded.
    for (TokenDraw& draw : part.draws) draw.before_penalty = draw.after_penalty = {};
    logits.copy_(part.logits);
    values.copy_(part.values());
    occurred.copy_(part.has_occurred());
    graph->replay();
    expect_wanted(chosen.to(at::kCPU), part);
  }
  EXPECT_EQ(fake::fault(), "");
  fake::configure({});
}

}  // namespace
}  // namespace tessera::generation
