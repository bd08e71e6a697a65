#include "tessera/measure/speed_of_light.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/models/llama/config.h"
#include "tessera/models/registry.h"
#include "tessera/nn/e4m3_layers.h"
#include "tessera/peft/lora.h"

#include "tests/models/reference_models.h"

namespace tessera::measure {
namespace {

using ::testing::UnorderedElementsAre;

// Makes a model of hidden size 12, queries 20, keys and values 5, MLP 7, vocabulary 31: no two sizes are
// equal.
std::shared_ptr<models::CausalLM> model_of(int64_t layers, bool tied) {
  models::LlamaConfig config;
  config.model_type = "llama";
  config.vocab_size = 31;
  config.hidden_size = 12;
  config.intermediate_size = 7;
  config.num_layers = layers;
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = config.rope.head_dim = 10;
  config.tie_word_embeddings = tied;
  return models::build_model(config, at::kFloat);
}

constexpr int64_t kTokens = 100, kLabels = 40;

TEST(StepGemms, FullFinetune) {
  for (const bool tied : {true, false}) {
    const StepGemms gemms = step_gemms(*model_of(3, tied), kTokens, kLabels);
    EXPECT_THAT(gemms.layers,
                UnorderedElementsAre(
                    GemmShape{100, 20, 12, 6},  // q forward, o's gradient of the input
                    GemmShape{100, 12, 20, 6},  // q's gradient of the input, o forward
                    GemmShape{20, 12, 100, 3}, GemmShape{12, 20, 100, 3},  // weights of q, of o
                    GemmShape{100, 10, 12, 6}, GemmShape{100, 12, 10, 6}, GemmShape{10, 12, 100, 6},  // k, v
                    GemmShape{100, 7, 12, 9},  // gate and up forward, down's gradient of the input
                    GemmShape{100, 12, 7, 9}, GemmShape{7, 12, 100, 6}, GemmShape{12, 7, 100, 3}));
    EXPECT_THAT(gemms.head, UnorderedElementsAre(GemmShape{40, 31, 12, 1}, GemmShape{40, 12, 31, 1},
                                                 GemmShape{31, 12, 40, 1}));
  }
}

TEST(StepGemms, LoraOnOneLayer) {
  const auto model = model_of(1, true);
  peft::LoraOptions options;
  options.rank = 3;
  options.target_modules = {"q_proj"};
  peft::apply_lora(*model, options);
  const StepGemms gemms = step_gemms(*model, kTokens, kLabels);
  EXPECT_THAT(gemms.head, UnorderedElementsAre(GemmShape{40, 31, 12, 1}, GemmShape{40, 12, 31, 1}));
  EXPECT_THAT(gemms.layers,
              UnorderedElementsAre(
                  GemmShape{100, 20, 12, 2}, GemmShape{100, 12, 20, 2}, GemmShape{100, 10, 12, 2},
                  GemmShape{100, 12, 10, 2}, GemmShape{100, 7, 12, 3}, GemmShape{100, 12, 7, 3},
                  GemmShape{100, 3, 12, 1}, GemmShape{100, 12, 3, 1}, GemmShape{3, 12, 100, 1},    // A
                  GemmShape{100, 20, 3, 1}, GemmShape{100, 3, 20, 1}, GemmShape{20, 3, 100, 1}));  // B
}

TEST(StepGemms, FlopsAndTime) {
  EXPECT_EQ(gemm_flops({{2, 3, 4, 5}, {10, 1, 1, 1}}), 2.0 * 2 * 3 * 4 * 5 + 20.0);
  // A full finetune takes about six operations for each weight and token.
  const auto model = model_of(3, false);
  int64_t weights = 0;
  for (const auto& parameter : model->parameters()) weights += parameter.dim() == 2 ? parameter.numel() : 0;
  weights -= 31 * 12;  // the embedding is not multiplied
  const StepGemms gemms = step_gemms(*model, kTokens, kTokens);
  EXPECT_EQ(gemm_flops(gemms.layers) + gemm_flops(gemms.head), 6.0 * 100 * static_cast<double>(weights));
  EXPECT_GT(measure_gemms({{64, 64, 64, 2}}, at::kFloat), 0.0);
  EXPECT_EQ(measure_gemms({{0, 64, 64, 2}, {64, 64, 0, 1}}, at::kFloat), 0.0);
}

// Weights of a block of hidden size 12, with two heads of 10 and an MLP of 7. The model has three of them.
constexpr double kBlockWeights = 12 * 20 * 2 + 12 * 5 * 2 * 2 + 3 * 12 * 7;

TEST(ModelFlops, AreSixForEachWeightAndTwelveForEachPairAndFeature) {
  const FlopCount count = model_flops(*model_of(3, true));
  EXPECT_EQ(count.per_token, 6.0 * 3 * kBlockWeights);
  EXPECT_EQ(count.per_label, 6.0 * 31 * 12);
  EXPECT_EQ(count.per_pair, 12.0 * 3 * 20);
  EXPECT_EQ(count.of(10, 4, 50), 10 * count.per_token + 4 * count.per_label + 50 * count.per_pair);
}

TEST(ModelFlops, RecomputedAreOneForward) {
  const auto model = model_of(3, true);
  EXPECT_EQ(recomputed_flops(*model, 0, false).of(10, 10, 10), 0.0);
  const FlopCount all = recomputed_flops(*model, 1, false), second = recomputed_flops(*model, 2, false);
  EXPECT_EQ(all.per_token, 2.0 * 3 * kBlockWeights);
  EXPECT_EQ(all.per_pair, 4.0 * 3 * 20);
  EXPECT_EQ(second.per_token, 2.0 * kBlockWeights);
  const FlopCount mlps = recomputed_flops(*model, 0, true);
  EXPECT_EQ(mlps.per_token, 2.0 * 3 * 2 * 12 * 7);
  EXPECT_EQ(mlps.per_pair, 0.0);
  EXPECT_EQ(mlps.per_label, 0.0);
}

// One layer of three has attention, four heads of 16; the others have 12 value heads of 5, with keys of 3.
TEST(ModelFlops, ADeltaNetReadsAndWritesItsMemory) {
  const auto model = models::build_model(models::reference_folder("qwen3_5"), at::kFloat);
  double weights = 0.0;
  for (const auto& module : model->modules(/*include_self=*/false)) {
    if (const auto* linear = dynamic_cast<const nn::Linear*>(module.get()))
      weights += static_cast<double>(linear->weight.numel());
  }
  constexpr double kState = 6.0 * 12 * 5 * 3;
  const FlopCount count = model_flops(*model), again = recomputed_flops(*model, 1, false);
  EXPECT_DOUBLE_EQ(count.per_token, 6.0 * weights + 3.0 * 2 * kState);
  EXPECT_DOUBLE_EQ(again.per_token, 2.0 * weights + 2 * kState);
  EXPECT_EQ(count.per_pair, 12.0 * 4 * 16);
}

// The sizes are hidden 16, queries 32, keys and values 8, MLP 24. The last two are no multiples of 16, so
// some of their products cannot be in fp8.
TEST(ModelFlops, ThoseInFp8AreCountedApartWhereTheWidthAllowsIt) {
  models::LlamaConfig config;
  config.model_type = "llama";
  config.vocab_size = 32;
  config.hidden_size = 16;
  config.intermediate_size = 24;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 1;
  config.head_dim = config.rope.head_dim = 8;
  const auto model = models::build_model(config, at::kBFloat16);
  const FlopCount plain = model_flops(*model), again = recomputed_flops(*model, 1, false);
  for (const auto& block : model->blocks()) nn::multiply_in_e4m3(*block);
  const FlopCount count = model_flops(*model), count_again = recomputed_flops(*model, 1, false);
  constexpr double kWide = 16 * 32, kNarrow = 16 * 8, kMlp = 16 * 24;  // weights of q or o, k or v, an MLP's
  // q and o make three products with a wide result; the others two, all but the one with k's and v's, or the
  // MLP's, width: forward of k, v, gate, up; input gradient of down; weight gradient of down.
  EXPECT_EQ(count.per_token_e4m3, 2.0 * 2 * (6 * kWide + 4 * kNarrow + (2 + 2 + 1) * kMlp));
  EXPECT_EQ(count.per_token + count.per_token_e4m3, plain.per_token);
  EXPECT_EQ(count.per_label, plain.per_label);
  EXPECT_EQ(count.of(3, 0, 0, 0.5), 3 * (count.per_token + 0.5 * count.per_token_e4m3));
  EXPECT_EQ(count_again.per_token_e4m3, 2.0 * 2 * (2 * kWide + kMlp));
  EXPECT_EQ(count_again.per_token + count_again.per_token_e4m3, again.per_token);
  EXPECT_GT(measure_gemms({{64, 64, 64, 2, ops::ProductType::E4m3}}, at::kBFloat16), 0.0);
}

}  // namespace
}  // namespace tessera::measure
