#include "tests/testing/extent.h"
#include "tests/testing/shared_random.h"
#include "tests/train/deep_model.h"
#include "tests/train/parity_families.h"
#include "tests/train/step_layout.h"

namespace tessera::train {
namespace {

struct ScheduleCase {
  PipelineKind kind;
  int64_t stages_per_rank;
};

constexpr ScheduleCase kSchedules[] = {{PipelineKind::GPipe, 1},       {PipelineKind::OneFOneB, 1},
                                       {PipelineKind::Interleaved, 2}, {PipelineKind::ZeroBubble, 1},
                                       {PipelineKind::ZeroBubble, 2},  {PipelineKind::GPipe, 2}};
constexpr Trained kTrained[] = {
    Trained::All, Trained::LoraWithDropout, Trained::DoraFromPissa, Trained::LoraWithBias,
    Trained::Ia3, Trained::VeraWithDropout, Trained::TokenRows,     Trained::Prompt};
constexpr config::ZeroStage kStages[] = {config::ZeroStage::Zero3, config::ZeroStage::Zero1,
                                         config::ZeroStage::Zero2, config::ZeroStage::Ddp};
constexpr config::Checkpointing kCheckpointing[] = {config::Checkpointing::Off, config::Checkpointing::Block,
                                                    config::Checkpointing::Mlp};

class StepPipelineTest : public ::testing::TestWithParam<ParityFamily> {};

// Checks every schedule, for all numbers of stages, and for tensor and context parallelism among the ranks
// of a stage. The other choices take turns.
TEST_P(StepPipelineTest, EqualsOneProcess) {
  const std::string& family = GetParam().name;
  const int64_t world = testing::world()->size();
  const DeepModel model(family, 8, GetParam().changes);
  size_t turn = 0;
  std::vector<LayoutCase> cases;
  for (int64_t pp = 2; pp <= std::min<int64_t>(world, 4); ++pp) {
    for (int64_t tp = 1; tp <= GetParam().kv_heads; ++tp) {
      if (world % (pp * tp) != 0) continue;
      for (const auto& [kind, stages] : kSchedules) {
        for (const Trained trained : kTrained) {
          LayoutCase layout{.family = family,
                            .tp = tp,
                            .pp = pp,
                            .trained = trained,
                            .schedule = kind,
                            .stages_per_rank = stages,
                            .folder = model.path()};
          ++turn;
          layout.stage = kStages[turn % 4];
          layout.checkpointing = kCheckpointing[turn / 2 % 3];
          // Numbers of micro-batches below that of the ranks occur, and such that are no multiples of it.
          layout.micro_batches = 2 + static_cast<int64_t>(turn * 3 % 7);
          layout.cp = world / pp / tp % 2 == 0 && turn % 4 == 1 ? 2 : 1;
          if (world > pp * tp * layout.cp && turn % 5 == 0) layout.micro_batches = 1;
          const bool has_pairs =
              world / pp / tp / layout.cp % 2 == 0 && layout.stage != config::ZeroStage::Ddp;
          layout.dp_replicate = has_pairs && turn % 3 == 0 ? 2 : 1;
          cases.push_back(layout);
        }
      }
    }
    // The layers of the first stages are frozen, so no gradient goes back to them.
    if (world % pp != 0 || !GetParam().is_in(Parity::FrozenPipelines) || pp > 3) continue;
    for (const PipelineKind kind : {PipelineKind::OneFOneB, PipelineKind::ZeroBubble}) {
      cases.push_back({.family = family, .pp = pp, .trained = Trained::SomeFrozen, .schedule = kind});
    }
  }
  testing::Random random = testing::shared_random();
  expect_same_as_one_process(testing::some_of(cases, 3, random));
}

INSTANTIATE_TEST_SUITE_P(All, StepPipelineTest, ::testing::ValuesIn(families_in(Parity::Pipelines)),
                         name_of_family);

}  // namespace
}  // namespace tessera::train
