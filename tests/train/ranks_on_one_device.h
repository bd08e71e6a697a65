// Compares steps under axes, and products of axes, with all ranks on one device, with the steps of one
// process on the host.
#pragma once

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "tests/comm/nccl/thread_ranks.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/tiny_model.h"
#include "tests/train/step_layout.h"

namespace tessera::train {

// Runs a body on a number of ranks that share one device.
using RunRanks = std::function<void(int64_t ranks, const testing::RankBody& body)>;

// A folder with a config.json of four layers; the weights are random, and the same on every rank.
class ModelOfFourLayers {
 public:
  explicit ModelOfFourLayers(const std::string& family) {
    auto config = testing::tiny_config({.family = family, .vocab = kVocabulary, .layers = 4});
    config["initializer_range"] = 0.3;
    testing::write_text(folder_.path() + "/config.json", config.dump());
  }
  std::string path() const { return folder_.path(); }

 private:
  testing::TempFolder folder_;
};

// Returns the layouts to test. LibTorch has one thread for the backwards of a device, so a backward must not
// wait on the host for another rank's backward. That excludes async_tensor_parallel, whose messages wait on
// the host for their other ends, and experts in recomputed blocks, which exchange numbers of rows there.
inline std::vector<LayoutCase> layouts_of(int64_t ranks) {
  using config::Checkpointing;
  using config::ZeroStage;
  const LayoutCase llama{.family = "llama"}, mixtral{.family = "mixtral"};
  const auto with = [](LayoutCase layout, const auto& change) {
    change(layout);
    return layout;
  };
  std::vector<LayoutCase> all = {
      llama,
      with(llama, [&](LayoutCase& l) { l.stage = ZeroStage::Ddp, l.trained = Trained::LoraWithDropout; }),
      with(llama, [&](LayoutCase& l) { l.pp = ranks, l.schedule = PipelineKind::ZeroBubble; }),
  };
  if (ranks == 2) {
    all.push_back(with(llama, [&](LayoutCase& l) {
      l.cp = 2, l.method = ContextParallelMethod::Ulysses, l.checkpointing = Checkpointing::Block;
    }));
    all.push_back(with(mixtral, [&](LayoutCase& l) { l.ep = 2; }));
  }
  if (ranks == 3)
    all.push_back(with(llama, [&](LayoutCase& l) { l.cp = 3, l.method = ContextParallelMethod::Ring; }));
  if (ranks != 3)
    all.push_back(with(llama, [&](LayoutCase& l) { l.tp = ranks, l.checkpointing = Checkpointing::Block; }));
  if (ranks == 4) {
    all.push_back(with(llama, [&](LayoutCase& l) { l.dp_replicate = 2, l.stage = ZeroStage::Zero2; }));
    all.push_back(with(llama, [&](LayoutCase& l) { l.tp = 2, l.trained = Trained::LoraWithDropout; }));
    all.push_back(with(llama, [&](LayoutCase& l) {
      l.tp = 2, l.pp = 2, l.stages_per_rank = 2, l.schedule = PipelineKind::Interleaved;
    }));
    all.push_back(with(llama, [&](LayoutCase& l) { l.cp = 4, l.method = ContextParallelMethod::Usp; }));
    all.push_back(
        with(mixtral, [&](LayoutCase& l) { l.ep = 2, l.cp = 2, l.method = ContextParallelMethod::Ring; }));
  }
  return all;
}

inline Outcome moved_to_host(Outcome outcome) {
  for (auto* const tensors : {&outcome.gradients, &outcome.values}) {
    for (auto& [name, tensor] : *tensors) tensor = tensor.to(kHost);
  }
  return outcome;
}

// Compares losses, norms, gradients and updated parameters of these layouts of 2, 3 and 4 ranks on the
// device, in float64.
inline void expect_ranks_equal_one_process(
    const RunRanks& run_ranks, c10::Device device,
    const std::function<std::vector<LayoutCase>(int64_t ranks)>& layouts = &layouts_of) {
  for (const int64_t ranks : {2, 3, 4}) {
    for (LayoutCase layout : layouts(ranks)) {
      const std::string what = layout.family + " on " + std::to_string(ranks) + " ranks, zero_stage " +
                               std::to_string(static_cast<int>(layout.stage)) + ", dp_replicate " +
                               std::to_string(layout.dp_replicate) + ", tp " + std::to_string(layout.tp) +
                               ", cp " + std::to_string(layout.cp) + ", pp " + std::to_string(layout.pp) +
                               ", ep " + std::to_string(layout.ep);
      SCOPED_TRACE(what);
      // A test that hangs is ended from outside, and has then told where.
      std::printf("%s\n", what.c_str());
      std::fflush(stdout);
      const ModelOfFourLayers model(layout.family);
      layout.folder = model.path();
      // Each rank along dp has two micro-batches for each stage.
      const int64_t count = std::max<int64_t>(3, 2 * ranks / (layout.tp * layout.cp));
      const Outcome want = run(without_axes(layout), comm::Communicator::single(), count);
      expect_worth_comparing(want);
      // One rank there equals the host too. It loads the kernels, for which CUDA may wait for all streams.
      expect_equal(moved_to_host(run(without_axes(layout), comm::Communicator::single(device), count)), want);
      std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
      run_ranks(ranks, [&](const std::shared_ptr<comm::Communicator>& world) {
        Outcome& own = outcomes[static_cast<size_t>(world->rank())];
        own = moved_to_host(run(layout, world, count));
      });
      for (const Outcome& got : outcomes) expect_equal(got, want);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace tessera::train
