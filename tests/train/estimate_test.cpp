// Tests that the memory which is counted on the meta device is that of the training.
#include "tessera/train/run/estimate.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/config/load_recipe.h"
#include "tessera/config/parallelism.h"
#include "tessera/core/process_stats.h"
#include "tessera/device/cpu_allocator.h"
#include "tessera/train/run/bench_steps.h"
#include "tessera/train/run/expected_memory.h"
#include "tessera/train/setup/recipe_values.h"
#include "tessera/train/setup/setup.h"
#include "tessera/train/step/training.h"

#include "tests/io/expect_error.h"
#include "tests/testing/mpi_world.h"
#include "tests/testing/tiny_model.h"
#include "tests/train/train_testing.h"

namespace tessera::train {
namespace {

struct EstimateCase {
  const char* family;
  const char* keys;
  double tolerance = 0.01;  // of the peak, beside a mebibyte
};

class EstimateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    install_cpu_allocator();
    if (folder_.is_owner()) {
      for (const char* const family : {"llama", "qwen3", "mixtral"}) write_config(family);
    }
    world_->barrier();
  }

  // A model that is large enough for a mebibyte, to which peaks are known, to be little.
  void write_config(const std::string& family, int64_t layers = 4, const std::string& folder = "") {
    const int64_t width = folder.empty() ? 1 : 16;
    nlohmann::ordered_json config = {{"model_type", family},
                                     {"hidden_size", 192 * width},
                                     {"intermediate_size", 512 * width},
                                     {"num_hidden_layers", layers},
                                     {"num_attention_heads", 12},
                                     {"num_key_value_heads", 6},
                                     {"head_dim", 16 * width},
                                     {"vocab_size", 3001},
                                     {"max_position_embeddings", 512},
                                     {"rms_norm_eps", 1e-6},
                                     {"rope_theta", 10000.0},
                                     {"hidden_act", "silu"},
                                     {"tie_word_embeddings", family == "qwen3"}};
    if (family == "mixtral") config.update({{"num_local_experts", 4}, {"num_experts_per_tok", 2}});
    const std::string path = folder_ / (folder.empty() ? family : folder);
    std::filesystem::create_directories(path);
    testing::write_text(path + "/config.json", config.dump());
  }

  config::Recipe recipe_of(const EstimateCase& c) const {
    return config::parse_recipe("base_model: " + (folder_ / c.family) +
                                    "\nrandom_init: true\ndatasets: [{path: none}]\nlearning_rate: 0.001\n"
                                    "micro_batch_size: 2\nsequence_len: 160\nmax_steps: 2\n" +
                                    c.keys,
                                "r.yaml");
  }

  // Makes two steps and returns what they took on this rank.
  RankMemory measure(const config::Recipe& asked) const {
    memory_ledger::start();
    {
      const ParallelDims dims = parallel_dims(asked, world_->size());
      const config::Recipe recipe = config::with_accumulation(asked, dims.dp_replicate * dims.dp_shard);
      const parallel::DeviceMesh mesh(world_, dims);
      TrainedModel trained = set_up_model(recipe, mesh);
      auto steps = bench_steps(recipe, false, trained.model->config(), mesh);
      BenchSteps& data = *steps;
      Training training(recipe, mesh, std::move(steps), std::move(trained));
      for (int64_t i = 0; i < 2; ++i) {
        data.make_next();
        training.step();
      }
    }
    memory_ledger::stop();
    return {world_->rank(), memory_ledger::peak(), memory_ledger::most()};
  }

  void expect_right(const EstimateCase& c) const {
    SCOPED_TRACE(std::string(c.family) + ": " + c.keys);
    const config::Recipe recipe = recipe_of(c);
    const RankMemory want = measure(recipe);
    const RankMemory got = estimate_memory(recipe, world_->size(), world_->rank());
    EXPECT_EQ(got.most.of(MemoryCategory::Parameters), want.most.of(MemoryCategory::Parameters));
    constexpr double kMebibyte = 0x1p20;
    // The other kinds are needed for a moment only: by reading, by kernels, by sums of LibTorch.
    for (const MemoryCategory category : {MemoryCategory::GatheredParameters, MemoryCategory::Gradients,
                                          MemoryCategory::Activations, MemoryCategory::Loss}) {
      EXPECT_NEAR(got.most.of(category), want.most.of(category),
                  0.1 * static_cast<double>(want.most.of(category)) + 2 * kMebibyte)
          << memory_category_name(category);
    }
    EXPECT_NEAR(got.peak.total(), want.peak.total(),
                c.tolerance * static_cast<double>(want.peak.total()) + kMebibyte);
    EXPECT_GT(want.peak.total(), 15 * kMebibyte) << "a model that is worth measuring";
    world_->barrier();
  }

  std::shared_ptr<comm::Communicator> world_ = testing::world();
  testing::SharedFolder folder_{world_};
};

TEST_F(EstimateTest, IsWhatTheTrainingTakes) {
  for (const EstimateCase& c : std::vector<EstimateCase>{
           {"llama", "zero_stage: 3\n"},
           {"llama", "zero_stage: 2\nbf16: true\ngradient_checkpointing: true\n"},
           {"qwen3", "zero_stage: 1\ngradient_accumulation_steps: 2\n"},
           {"qwen3", "zero_stage: 0\noptimizer: adamw_8bit\npure_bf16: true\n"},
           {"qwen3", "optimizer: adafactor\nupdate_in_backward: true\nmax_grad_norm: 0\n"},
           {"llama", "adapter: lora\nlora_r: 16\nlora_target_linear: true\nlora_dropout: 0.1\n"},
           {"llama", "adapter: qlora\nlora_r: 16\nlora_target_linear: true\ngradient_checkpointing: mlp\n"},
           {"llama", "optimizer: muon\n", 0.05},
           {"llama", "optimizer: galore_adamw\noptimizer_args: {rank: 32}\n", 0.05},
           {"qwen3", "optimizer: adam_mini\n"},
           {"llama", "zero_stage: 2\nzero_quantized_weights: true\nzero_quantized_gradients: true\n", 0.05},
           {"mixtral", "zero_stage: 3\n", 0.1}})
    expect_right(c);
}

TEST_F(EstimateTest, KnowsTheAxes) {
  const int64_t ranks = world_->size();
  if (ranks == 1) return;
  const std::string size = std::to_string(ranks) + "\n";
  for (const std::string keys : {"tensor_parallel_size: ", "context_parallel_size: ",
                                 "gradient_accumulation_steps: 4\npipeline_parallel_size: "})
    expect_right({"llama", (keys + size).c_str(), 0.03});
  if (ranks == 2) expect_right({"mixtral", "expert_parallel_size: 2\n", 0.1});
}

// Among many ranks the parts that tensor parallelism cuts would be more than all that a rank keeps.
TEST_F(EstimateTest, CountsNothingBeforeTheTilesHaveMemory) {
  const config::Recipe recipe = recipe_of({"llama", "tensor_parallel_size: 2\nzero_stage: 3\n"});
  EXPECT_LT(estimate_memory(recipe, 64, 0).most.of(MemoryCategory::Other), 1 << 20);
}

// The states do not fit, and those on a drive do.
TEST_F(EstimateTest, ARunThatCannotFitIsRefusedWithWhatWould) {
  constexpr int64_t kHidden = 192 * 16, kInner = 512 * 16;
  constexpr int64_t kOfLayer = 3 * kHidden * kHidden + 3 * kHidden * kInner;  // k and v are half as wide as q
  const int64_t layers = usable_memory_bytes() * 13 / 10 / 12 / kOfLayer;
  if (folder_.is_owner()) write_config("llama", layers, "large");
  world_->barrier();
  const config::Recipe recipe = recipe_of({"large", "gradient_checkpointing: true\n"});
  testing::expect_error(ErrorKind::Memory, {"CANNOT-FIT", "it would fit with offload_optimizer_device: nvme"},
                        [&] { expect_memory(recipe, *world_); });
  // One that fits says what it takes.
  const config::Recipe small = recipe_of({"llama", "\n"});
  EXPECT_GT(expect_memory(small, *world_).value(), 15 << 20);
}

// A limit changes what costs time alone, and no more of it than it must.
TEST_F(EstimateTest, ARunKeepsItsOwnLimit) {
  if (world_->size() > 1) return;  // the programs of ranks have sizes of their own
  config::Recipe recipe = recipe_of({"llama", "\n"}), recomputed = recipe;
  recipe.micro_batch_size = recomputed.micro_batch_size = 64;
  recomputed.gradient_checkpointing = config::Checkpointing::Block;
  const auto need = [&](const config::Recipe& of) { return estimate_memory(of, 1, 0).peak.total(); };
  const auto limited = [&](int64_t bytes) {
    recipe.host_memory_limit = std::to_string(current_rss_bytes() + bytes) + "B";
    return within_host_memory(recipe, *world_);
  };
  const int64_t whole = need(recipe);
  EXPECT_EQ(limited(2 * whole).gradient_checkpointing, config::Checkpointing::Off);
  const config::Recipe slower = limited((whole + need(recomputed)) / 2);
  EXPECT_NE(slower.gradient_checkpointing, config::Checkpointing::Off);
  EXPECT_EQ(slower.micro_batch_size, 64);
  const config::Recipe split = limited(need(recomputed) / 2);
  EXPECT_EQ(split.micro_batch_size, 1);
  EXPECT_EQ(split.gradient_accumulation_steps, 64);
  EXPECT_EQ(split.offload_optimizer_device, config::OffloadDevice::None);
  const config::Recipe same = limited(1);
  EXPECT_EQ(same.micro_batch_size, 64);
  testing::expect_error(ErrorKind::Memory, {"CANNOT-FIT", "host_memory_limit"},
                        [&] { expect_memory(same, *world_); });
}

}  // namespace
}  // namespace tessera::train
