// Compares one training on 1, 2 and 3 ranks under every way of sharding.
#include <algorithm>
#include <cmath>

#include "tests/integration/fixture.h"
#include "tests/testing/extent.h"

namespace tessera::testing {
namespace {

using LayoutsTest = ProgramTest;

void expect_same_numbers(const std::string& folder, const std::string& other, const std::string& key) {
  const auto a = read_column(folder, key), b = read_column(other, key);
  ASSERT_EQ(a.size(), b.size()) << other;
  for (size_t step = 0; step < a.size(); ++step) {
    EXPECT_NEAR(a[step], b[step], 1e-9 * std::max(1.0, std::abs(a[step])))
        << key << " of step " << step + 1 << " in " << other;
  }
}

// A step of each run takes 12 rows: gradient accumulation x ranks x micro-batch of 2.
class LayoutsRuns : public LayoutsTest {
 protected:
  struct Layout {
    int ranks, stage;
  };

  static std::vector<Layout> all_layouts() {
    std::vector<Layout> all;
    for (const int ranks : {2, 3}) {
      for (const int stage : {0, 1, 2, 3}) all.push_back({ranks, stage});
    }
    return all;
  }

  // Compares runs in these layouts with one of one process.
  void compare(const Words& more, const std::vector<Layout>& layouts) {
    const auto run_in = [&](const std::string& folder, int ranks, int stage) {
      Words arguments = more;
      arguments.insert(
          arguments.end(),
          {"dtype=float64", "max_steps=5", "output_dir=" + folder, "zero_stage=" + std::to_string(stage),
           "gradient_accumulation_steps=" + std::to_string(6 / ranks), "--nproc", std::to_string(ranks)});
      train_well(arguments);
    };
    run_in("one", 1, 3);
    for (const auto& [ranks, stage] : layouts) {
      const std::string folder = "np" + std::to_string(ranks) + "-zero" + std::to_string(stage);
      run_in(folder, ranks, stage);
      for (const char* key : {"loss", "grad_norm", "tokens", "label_tokens", "lr", "epoch"}) {
        expect_same_numbers(here / "one", here / folder, key);
      }
    }
  }
};

TEST_F(LayoutsRuns, FullFinetuneOn2And3Ranks) {
  Random random;
  compare({}, some_of(all_layouts(), 2, random));
}

TEST_F(LayoutsRuns, LoraOn2And3Ranks) {
  // The first and the last layout always run, as their logits are compared below.
  const std::vector<Layout> all = all_layouts();
  Random random;
  std::vector<Layout> layouts = some_of(std::vector<Layout>(all.begin() + 1, all.end() - 1), 1, random);
  layouts.push_back(all.front());
  layouts.push_back(all.back());
  compare({"adapter=lora", "lora_target_linear=true", "lora_r=3", "lora_dropout=0"}, layouts);
  const auto one = logits(model(), here / "one");
  for (const char* folder : {"np2-zero0", "np3-zero3"}) {
    const auto other = logits(model(), here / folder);
    ASSERT_EQ(one.size(), other.size());
    for (size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(one[i], other[i], 1e-5) << folder;
  }
}

TEST_F(LayoutsTest, RoutersKeysOfAModelWithoutExpertsAreToldOnceOn2Ranks) {
  train_well({"max_steps=1", "output_dir=plain"});
  const ProgramResult result = train_well({"max_steps=1", "output_dir=routers", "router_aux_loss_coef=0.1",
                                           "router_z_loss_coef=0.01", "--nproc", "2"});
  for (const char* key : {"router_aux_loss_coef", "router_z_loss_coef"}) {
    const Words told = ProgramResult::lines_with(result.err, key);
    ASSERT_EQ(told.size(), 1u) << result.told();
    EXPECT_NE(told[0].find("has no effect: the model has no experts"), std::string::npos) << told[0];
  }
}

TEST_F(LayoutsTest, RecomputedBlocksOn2Ranks) {
  const Words same = {"dtype=float64", "gradient_accumulation_steps=2"};
  const auto with = [&](const Words& more) {
    Words words = same;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  train_well(with({"output_dir=one", "micro_batch_size=4"}));
  train_well(with({"output_dir=two", "gradient_checkpointing=true", "--nproc", "2"}));
  expect_same_numbers(here / "one", here / "two", "loss");
  expect_same_numbers(here / "one", here / "two", "grad_norm");
}

TEST_F(LayoutsTest, ReplicatedShardsOn3Ranks) {
  // The three ranks are replicas: each holds the whole model.
  train_well({"dtype=float64", "output_dir=one", "gradient_accumulation_steps=3"});
  train_well({"dtype=float64", "output_dir=three", "dp_replicate_size=3", "dp_shard_size=1", "--nproc", "3"});
  expect_same_numbers(here / "one", here / "three", "loss");
}

TEST_F(LayoutsTest, SavedModelIsWholeOn3Ranks) {
  train_well({"gradient_accumulation_steps=3", "output_dir=one"});
  train_well({"output_dir=three", "--nproc", "3"});
  const auto one = logits(here / "one"), three = logits(here / "three");
  ASSERT_EQ(one.size(), three.size());
  for (size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(one[i], three[i], 1e-3) << i;
}

}  // namespace
}  // namespace tessera::testing
