// Tests what the planner learns of recipes and models.
#include "tessera/train/run/planned_work.h"

#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/config/load_recipe.h"
#include "tessera/models/registry.h"
#include "tessera/planner/search.h"
#include "tessera/planner/step_time.h"
#include "tessera/train/run/this_processor.h"
#include "tessera/train/run/update_rate.h"

#include "tests/models/reference_models.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/tiny_model.h"

namespace tessera::train {
namespace {

nlohmann::json config_of(const std::string& family) {
  nlohmann::json config = {{"model_type", family},
                           {"hidden_size", 64},
                           {"intermediate_size", 96},
                           {"num_hidden_layers", 3},
                           {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},
                           {"head_dim", 16},
                           {"vocab_size", 320},
                           {"max_position_embeddings", 512},
                           {"rms_norm_eps", 1e-6},
                           {"rope_theta", 10000.0},
                           {"hidden_act", "silu"},
                           {"tie_word_embeddings", false}};
  if (family == "mixtral") config.update({{"num_local_experts", 4}, {"num_experts_per_tok", 2}});
  if (family == "gpt2") {
    config = {{"model_type", "gpt2"}, {"n_embd", 64},       {"n_inner", 96},    {"n_layer", 3},
              {"n_head", 4},          {"n_positions", 512}, {"vocab_size", 320}};
  }
  return config;
}

planner::ModelWork work_of_family(const std::string& family) {
  const auto config = models::parse_model_config(config_of(family).dump(), "config.json");
  return work_of(*models::build_model(*config, at::kFloat), *config);
}

// The shape that papers state gives the same work as the model itself, up to biases and small norms.
TEST(PlannedWorkTest, AModelHasTheWorkOfItsShape) {
  struct Case {
    const char* family;
    planner::ModelShape shape;
  };
  planner::ModelShape sparse{3, 64, 96, 4, 2, 16, 320};
  sparse.experts = 4;
  sparse.experts_per_token = 2;
  for (const Case& c : {Case{"llama", {3, 64, 96, 4, 2, 16, 320}}, Case{"mixtral", sparse},
                        Case{"gpt2", {3, 64, 96, 4, 4, 16, 320, false, true}}}) {
    SCOPED_TRACE(c.family);
    const planner::ModelWork got = work_of_family(c.family), want = planner::model_work(c.shape);
    EXPECT_DOUBLE_EQ(got.block_flops(), want.block_flops());
    EXPECT_DOUBLE_EQ(got.flops_per_token(128), want.flops_per_token(128));
    EXPECT_DOUBLE_EQ(got.mlp_width, want.mlp_width);
    EXPECT_EQ(got.is_gated, want.is_gated);
    EXPECT_EQ(got.head_parameters, want.head_parameters);
    EXPECT_NEAR(got.block_parameters, want.block_parameters, 0.03 * want.block_parameters);
    const auto cut = [](const planner::ModelWork& work) {
      double parameters = 0.0;
      for (const planner::Matrix& matrix : work.block)
        parameters += matrix.cuts_input ? matrix.parameters() : 0.0;
      return parameters;
    };
    EXPECT_DOUBLE_EQ(cut(got), cut(want));
  }
}

// Two of three layers are delta nets: 12 value heads of 5, with keys of 3. The other has attention, with a
// gate.
TEST(PlannedWorkTest, AModelWithDeltaNetsHasAttentionInSomeLayers) {
  const auto config = models::read_model_config(models::reference_folder("qwen3_5"));
  const planner::ModelWork work = work_of(*models::build_model(*config, at::kFloat), *config);
  EXPECT_DOUBLE_EQ(work.pair_flops, 4.0 * 4 * 16 / 3);
  EXPECT_DOUBLE_EQ(work.state_flops, 6.0 * 12 * 5 * 3 * 2 / 3);
  constexpr double kMixer = 16.0 * (84 + 60 + 12 + 12 + 60), kAttention = 16.0 * (128 + 32 + 32 + 64);
  EXPECT_DOUBLE_EQ(work.block_flops(),
                   2.0 * (2 * kMixer + kAttention) / 3 + 2.0 * 3 * 16 * 18 + work.state_flops);
}

class PlannedRecipeTest : public ::testing::Test {
 protected:
  PlannedRecipeTest() {
    std::filesystem::create_directories(folder_ / "model");
    testing::write_text(folder_ / "model/config.json", config_of("llama").dump());
    testing::write_text(folder_ / "rows.jsonl", "{\"input_ids\": [1, 2], \"labels\": [1, 2]}\n");
    testing::write_text(recipe_, "base_model: " + (folder_ / "model") +
                                     "\ndatasets: [{path: " + (folder_ / "rows.jsonl") +
                                     "}]\nrandom_init: true\nlearning_rate: 0.1\nsequence_len: 128\n"
                                     "micro_batch_size: 2\ngradient_accumulation_steps: 4\n");
  }
  testing::TempFolder folder_;
  const std::string recipe_ = folder_ / "r.yaml";
};

TEST_F(PlannedRecipeTest, AStepKeepsItsSequences) {
  const auto sequences = [&](const std::vector<std::string>& overrides) {
    return job_of(config::load_recipe(recipe_, overrides), 8).sequences_per_step;
  };
  EXPECT_EQ(sequences({}), 64);
  EXPECT_EQ(sequences({"tensor_parallel_size=2"}), 32);
  EXPECT_EQ(sequences({"global_batch_size=24", "gradient_accumulation_steps="}), 24);
  EXPECT_EQ(job_of(config::load_recipe(recipe_, {"optimizer=lion"}), 1).state_bytes, 4.0);
}

// The states that are counted by shapes are those that the training of one rank holds.
TEST_F(PlannedRecipeTest, StatesAreThoseOfTheTraining) {
  testing::write_text(folder_ / "model/config.json", [] {
    nlohmann::json config = config_of("llama");
    config["hidden_size"] = 256;
    config["intermediate_size"] = 512;
    config["vocab_size"] = 2048;
    return config.dump();
  }());
  const auto config = models::read_model_config(folder_ / "model");
  const auto model = models::build_model(*config, at::kFloat);
  double parameters = 0.0;
  for (const auto& parameter : model->parameters()) parameters += static_cast<double>(parameter.numel());
  for (const std::vector<std::string>& keys : std::vector<std::vector<std::string>>{
           {"optimizer=lion"},
           {"optimizer=adamw_8bit"},
           {"optimizer=adafactor"},
           {"optimizer=muon"},
           {"optimizer=adam_mini"},
           {"optimizer=galore_adamw", "optimizer_args={rank: 32}", "optim_target_modules=[mlp]"},
           {"optimizer=apollo_adamw", "optimizer_args={rank: 16}"}}) {
    SCOPED_TRACE(keys.front());
    const config::Recipe recipe = config::load_recipe(recipe_, keys);
    planner::Job job = job_of(recipe, 1);
    count_states(recipe, *model, job);
    const auto held =
        static_cast<double>(estimate_memory(recipe, 1, 0).peak.of(MemoryCategory::OptimizerState));
    EXPECT_NEAR((job.state_bytes + job.whole_state_bytes) * parameters, held, 0.02 * held + 4096);
  }
}

// An update by other rules than AdamW's in float32 is measured, and a plan takes what it measured.
TEST_F(PlannedRecipeTest, UpdatesAreMeasured) {
  const planner::ModelWork work = work_of_family("llama");
  const planner::Cluster cluster = this_processor(1, {0.1, 0.1, 20.0});
  EXPECT_EQ(seconds_of_update(config::load_recipe(recipe_), work), 0.0);
  for (const std::vector<std::string>& keys : std::vector<std::vector<std::string>>{
           {"optimizer=lion"},
           {"bf16=true", "pure_bf16=true"},
           {"optimizer=muon"},
           {"optimizer=galore_adamw", "optimizer_args={rank: 32}", "optim_target_modules=[mlp]"},
           {"optimizer_state_dtype=bfloat16", "offload_optimizer_device=cpu"}}) {
    SCOPED_TRACE(keys.front());
    const config::Recipe recipe = config::load_recipe(recipe_, keys);
    const double seconds = seconds_of_update(recipe, work);
    EXPECT_TRUE(seconds > 1e-12 && seconds < 1e-4) << seconds;
    planner::Job job = job_of(recipe, 1);
    job.update_s = 1e-3;
    EXPECT_NEAR(planner::step_time(work, cluster, job, choice_of(recipe, 1)).of(planner::Term::Optimizer),
                1e-3 * work.parameters(), 1e-6 * work.parameters());
  }
}

// Whatever the search proposes, the trainer takes; more shards need less memory.
TEST_F(PlannedRecipeTest, ChoicesCanBeTrained) {
  const config::Recipe recipe = config::load_recipe(recipe_);
  const planner::Job job = job_of(recipe, 8);
  const planner::SearchResult found =
      planner::search(work_of_family("llama"), planner::load_cluster("2x4xH100"), job, kept_choice(recipe));
  ASSERT_GT(found.plans.size(), 20u);
  size_t counted = 0;
  for (size_t i = 0; i < found.plans.size(); i += 1 + found.plans.size() / 40) {
    SCOPED_TRACE(::testing::PrintToString(found.plans[i].choice.recipe_lines(job)));
    const auto memory = count_memory(recipe_, {}, job, found.plans[i].choice);
    ASSERT_EQ(memory.size(), found.plans[i].choice.pp > 1 ? 2u : 1u);
    EXPECT_GT(memory.front().peak.total(), 0);
    ++counted;
  }
  EXPECT_GT(counted, 15u);
}

// More micro-batches take no more memory, and are not followed.
TEST_F(PlannedRecipeTest, OnlyAFewMicroBatchesAreFollowed) {
  planner::Choice choice = kept_choice(config::load_recipe(recipe_));
  choice.pp = 3;
  planner::Job job = job_of(config::load_recipe(recipe_), 3);
  const auto bytes = [&](int64_t micro_batches) {
    choice.accumulation = micro_batches;
    return count_memory(recipe_, {"global_batch_size=7", "gradient_accumulation_steps="}, job, choice)
        .front()
        .peak.total();
  };
  const int64_t most = bytes(1'000'000);
  EXPECT_EQ(bytes(7), most);
  EXPECT_EQ(bytes(6), most);
}

TEST_F(PlannedRecipeTest, WhatIsComputedIsKept) {
  const auto kept = [&](const std::vector<std::string>& overrides) {
    return kept_choice(config::load_recipe(recipe_, overrides));
  };
  EXPECT_EQ(kept({}).precision, planner::Precision::Float32);
  EXPECT_EQ(kept({"bf16=true"}).precision, planner::Precision::BFloat16);
  EXPECT_EQ(kept({"fp8=true"}).precision, planner::Precision::Fp8);
  EXPECT_EQ(kept({"adapter=qlora", "lora_r=4", "lora_target_linear=true"}).base, planner::Base::FourBit);
  EXPECT_EQ(kept({"adapter=lora", "lora_r=4", "lora_target_linear=true"}).adapter_rank, 4);
  EXPECT_THROW(kept({"dtype=float64"}), Error);
}

}  // namespace
}  // namespace tessera::train
