// Tests of models with experts under any layout, also with experts spread over ranks.
#include "tessera/train/run/trainer.h"
#include "tessera/train/setup/recipe_values.h"

#include "tests/io/expect_error.h"
#include "tests/testing/extent.h"
#include "tests/testing/shared_random.h"
#include "tests/testing/tiny_model.h"
#include "tests/train/deep_model.h"
#include "tests/train/parity_families.h"
#include "tests/train/step_layout.h"
#include "tests/train/train_testing.h"

namespace tessera::train {
namespace {

constexpr Trained kTrained[] = {
    Trained::All, Trained::LoraWithDropout, Trained::DoraFromPissa, Trained::LoraWithBias,
    Trained::Ia3, Trained::VeraWithDropout, Trained::LoraOfExperts};
constexpr config::ZeroStage kStages[] = {config::ZeroStage::Zero3, config::ZeroStage::Zero1,
                                         config::ZeroStage::Zero2};
constexpr config::Checkpointing kCheckpointing[] = {config::Checkpointing::Off, config::Checkpointing::Block,
                                                    config::Checkpointing::Mlp};

class StepExpertOfFamilyTest : public ::testing::TestWithParam<ParityFamily> {};

// Checks every product of replicated, expert, context and tensor parallel ranks; the other choices take
// turns.
TEST_P(StepExpertOfFamilyTest, EqualsOneProcess) {
  const std::string& family = GetParam().name;
  const int64_t world = testing::world()->size();
  const auto changed = changed_model(GetParam(), 3);
  size_t turn = 0;
  std::vector<LayoutCase> cases;
  for (int64_t tp = 1; tp <= std::min(world, GetParam().kv_heads); ++tp) {
    for (int64_t cp = 1; cp <= world / tp; ++cp) {
      for (int64_t dp_replicate = 1; dp_replicate <= world / tp / cp; ++dp_replicate) {
        if (world % (tp * cp * dp_replicate) != 0) continue;
        const int64_t sharing = world / tp / dp_replicate;
        for (int64_t ep = 1; ep <= std::min(sharing, GetParam().experts); ++ep) {
          if (sharing % ep != 0) continue;
          for (const Trained trained : kTrained) {
            LayoutCase layout{.family = family, .dp_replicate = dp_replicate, .tp = tp, .cp = cp, .ep = ep};
            layout.trained = trained;
            if (changed) layout.folder = changed->path();
            layout.stage = kStages[turn % 3];
            layout.checkpointing = kCheckpointing[turn / 2 % 3];
            layout.method = turn / 2 % 2 == 0 ? ContextParallelMethod::Ring : ContextParallelMethod::Ulysses;
            ++turn;
            cases.push_back(layout);
          }
        }
      }
    }
  }
  testing::Random random = testing::shared_random();
  expect_same_as_one_process(testing::some_of(cases, 3, random));
}

INSTANTIATE_TEST_SUITE_P(All, StepExpertOfFamilyTest, ::testing::ValuesIn(families_in(Parity::Experts)),
                         name_of_family);

TEST(StepExpertTest, StagesOfAPipeline) {
  const int64_t world = testing::world()->size();
  size_t turn = 0;
  std::vector<LayoutCase> cases;
  for (int64_t pp = 2; pp <= std::min<int64_t>(world, 3); ++pp) {
    if (world % pp != 0) continue;
    for (const auto& [kind, tp] :
         {std::pair{PipelineKind::OneFOneB, 1}, {PipelineKind::ZeroBubble, 1}, {PipelineKind::GPipe, 2}}) {
      for (const Trained trained : {Trained::All, Trained::LoraWithDropout, Trained::LoraOfExperts}) {
        const int64_t sharing = world / pp / tp;
        if (world % (pp * tp) != 0) continue;
        LayoutCase layout{.family = "qwen3_moe", .tp = tp, .pp = pp, .trained = trained, .schedule = kind};
        layout.ep = sharing;
        layout.cp = sharing % 2 == 0 && turn % 2 == 0 ? 2 : 1;
        layout.stage = kStages[turn % 3];
        layout.checkpointing = kCheckpointing[turn % 3];
        ++turn;
        cases.push_back(layout);
      }
    }
  }
  expect_same_as_one_process(cases);
}

// The bounds are for all gradients together. They allow for routers that choose the other one of two nearly
// equal experts.
TEST(StepExpertTest, OtherTypesStayWithinBounds) {
  struct Bound {
    config::ComputeType dtype;
    double loss, gradients;
  };
  const auto world = testing::world();
  const int64_t count = 3 * world->size();
  for (const char* family : {"mixtral", "qwen2_moe", "qwen3_moe"}) {
    LayoutCase layout{.family = family};
    const Outcome want = run(layout, comm::Communicator::single(), count);
    layout.ep = world->size() <= 4 ? world->size() : 2;
    for (const Bound& bound :
         {Bound{config::ComputeType::Float32, 1e-5, 1e-4}, Bound{config::ComputeType::BFloat16, 0.01, 0.1}}) {
      SCOPED_TRACE(std::string(family) + ", type " + std::to_string(static_cast<int>(bound.dtype)));
      layout.dtype = bound.dtype;
      const Outcome got = run(layout, world, count);
      EXPECT_NEAR(got.losses[0], want.losses[0], bound.loss * want.losses[0]);
      double error = 0.0, norm = 0.0;
      ASSERT_EQ(got.gradients.size(), want.gradients.size());
      for (size_t i = 0; i < got.gradients.size(); ++i) {
        const at::Tensor& exact = want.gradients[i].second;
        error += (got.gradients[i].second - exact).square().sum().item<double>();
        norm += exact.square().sum().item<double>();
      }
      EXPECT_GT(error, 0.0) << "another type";
      EXPECT_LT(std::sqrt(error / norm), bound.gradients);
    }
  }
}

TEST(StepExpertTest, ARankHoldsItsExpertsAlone) {
  const auto world = testing::world();
  const LayoutCase layout{.family = "mixtral", .ep = std::min<int64_t>(world->size(), 5)};
  if (world->size() % layout.ep != 0) return;
  const config::Recipe recipe = recipe_of(layout);
  const parallel::DeviceMesh mesh(world, parallel_dims(recipe, world->size()));
  const TrainedModel trained = set_up(layout, mesh);
  int64_t own = 0, all = 0;
  for (const auto& parameter : trained.sharded->parameters()) {
    if (parameter.name.find(".experts.") == std::string::npos) continue;
    own += parameter.tile.numel();
    all += parameter.layout.numel();
  }
  const int64_t experts = (5 + layout.ep - 1) / layout.ep;
  EXPECT_LE(own, all * experts / 5);
  const at::Tensor sum = at::tensor({own}, at::kLong);
  world->all_reduce(sum);
  EXPECT_EQ(sum.item<int64_t>(), all);
}

// A run goes on from a checkpoint with another expert_parallel_size, and its result is the same folder.
TEST(StepExpertTest, RunsGoOnWithOtherSizes) {
  const auto world = testing::world();
  const int64_t ranks = world->size();
  const testing::SharedFolder folder(world);
  if (folder.is_owner()) {
    testing::write_tiny_model(folder / "model", {.family = "mixtral", .experts = 7});
    testing::write_text(folder / "rows.jsonl", testing::tiny_rows(4 * ranks));
  }
  world->barrier();
  const auto go = [&](const std::string& out, int64_t ep, const std::string& more) {
    const std::string text = "base_model: " + folder / "model" + "\noutput_dir: " + folder / out +
                             "\nmax_steps: 6\nlearning_rate: 0.02\nsave_steps: 2\ndtype: float64\n" +
                             "router_aux_loss_coef: 0.1\nexpert_parallel_size: " + std::to_string(ep) +
                             "\ndatasets: [{path: " + folder / "rows.jsonl" + "}]\n" + more;
    train(config::parse_recipe(text, "recipe.yaml"), world);
  };
  go("whole", 1, "");
  go("spread", ranks, "resume_from_checkpoint: " + folder / "whole/checkpoint-2" + "\n");
  go("again", 1, "resume_from_checkpoint: " + folder / "spread/checkpoint-4" + "\n");
  if (!folder.is_owner()) return world->barrier();
  const auto want = testing::metrics_with(folder / "whole/metrics.jsonl", "loss");
  for (const std::string out : {"spread", "again"}) {
    const auto got = testing::metrics_with(folder / (out + "/metrics.jsonl"), "loss");
    ASSERT_EQ(got.size(), want.size()) << out;
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got[i].at("loss"), want[i].at("loss").get<double>(), 1e-9) << out << " step " << i + 1;
      EXPECT_NEAR(got[i].at("grad_norm"), want[i].at("grad_norm").get<double>(), 1e-8) << out;
    }
  }
  const models::TensorFile first(folder / "whole/model.safetensors"),
      last(folder / "spread/model.safetensors");
  for (const std::string part : {"w1", "w2", "w3"}) {
    const std::string name = "model.layers.1.block_sparse_moe.experts.6." + part + ".weight";
    EXPECT_LT(models::max_difference(first.get(name), last.get(name)), 1e-8);
  }
  world->barrier();
}

TEST(StepExpertTest, SizesThatDoNotFitAreRefused) {
  LayoutCase layout{.family = "mixtral", .ep = 3};
  testing::expect_error(ErrorKind::Config, {"expert_parallel_size 3", "the nearest valid sizes are 2 and 4"},
                        [&] { parallel_dims(recipe_of(layout), 4); });
  layout.ep = 2;
  layout.stage = config::ZeroStage::Ddp;
  testing::expect_error(ErrorKind::Config, {"zero_stage 0"}, [&] { parallel_dims(recipe_of(layout), 4); });
  layout.stage = config::ZeroStage::Zero3;
  layout.ep = 6;
  const auto plan = [&] {
    config::Problems problems;
    const config::Recipe recipe = recipe_of(layout);
    plan_model(recipe, models::BaseModel::open(recipe.base_model), problems);
  };
  testing::expect_error(ErrorKind::Config, {"5 experts in a layer", "expert_parallel_size: 3"}, plan);
  layout.family = "llama3";
  testing::expect_error(ErrorKind::Config, {"no experts"}, plan);
}

}  // namespace
}  // namespace tessera::train
