#include "tessera/measure/measure_parts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/models/reference_models.h"

namespace tessera::measure {
namespace {

MeasureOptions short_documents() { return {.dtype = at::kDouble, .documents = 2, .document_tokens = 6}; }

TEST(MeasurePartsTest, EveryPartTakesTimeAndTheModelIsAsBefore) {
  for (const char* family : {"llama3", "gpt2", "mistral_sliding", "qwen3_moe", "qwen3_moe_options"}) {
    for (const int64_t every : {0, 2}) {
      SCOPED_TRACE(std::string(family) + ", recomputed " + std::to_string(every));
      const auto model = models::build_model(models::reference_folder(family), at::kDouble);
      MeasureOptions options = short_documents();
      options.checkpoint_every = every;
      options.recompute_mlps = every == 0;
      const parallel::PartCosts costs = measure_parts(*model, options);
      EXPECT_GT(costs.first, 0.0);
      EXPECT_GT(costs.last, 0.0);
      ASSERT_EQ(costs.blocks.size(), model->blocks().size());
      for (const double cost : costs.blocks) EXPECT_GT(cost, 0.0);
      EXPECT_TRUE(model->is_training());
      for (const auto& entry : model->named_parameters()) {
        EXPECT_TRUE(entry.value().is_meta() && entry.value().requires_grad()) << entry.key();
        EXPECT_EQ(entry.value().scalar_type(), at::kDouble) << entry.key();
        EXPECT_FALSE(entry.value().grad().defined()) << entry.key();
      }
    }
  }
}

// Blocks of one kind get one time, however the machine's speed varies.
TEST(MeasurePartsTest, BlocksOfAKindAreMeasuredOnce) {
  const auto model = models::build_model(models::reference_folder("llama3"), at::kDouble);
  ASSERT_GE(model->blocks().size(), 3U);
  const auto times = [&] { return measure_parts(*model, short_documents()).blocks; };
  const std::vector<double> alike = times();
  EXPECT_EQ(alike, std::vector<double>(alike.size(), alike.front()));
  for (at::Tensor& parameter : model->blocks()[1]->parameters()) parameter.set_requires_grad(false);
  const std::vector<double> frozen = times();
  EXPECT_EQ(frozen[0], frozen[2]);
}

TEST(MeasurePartsTest, InAnotherTypeThanTheModels) {
  const auto model = models::build_model(models::reference_folder("llama3"), at::kFloat);
  MeasureOptions options = short_documents();
  options.dtype = at::kBFloat16;
  EXPECT_GT(measure_parts(*model, options).last, 0.0);
  EXPECT_EQ(model->hidden_type(), at::kFloat);
}

}  // namespace
}  // namespace tessera::measure
