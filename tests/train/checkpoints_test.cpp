// Tests of checkpoints that are written beside the steps of a run: they have the same bytes, whatever the
// disk does.
#include "tessera/train/run/checkpoints.h"

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/io/checkpoint_folders.h"
#include "tessera/io/disk_calls.h"
#include "tessera/train/run/trainer.h"

#include "tests/io/expect_error.h"
#include "tests/testing/mpi_world.h"
#include "tests/testing/shared_random.h"
#include "tests/testing/tiny_model.h"
#include "tests/train/train_testing.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using testing::expect_error;
using ::testing::HasSubstr;

// While it lives, a test decides how this process's disk calls about files of checkpoints end.
class DiskFault {
 public:
  using Fault = std::function<int(const std::string& call, const std::string& path)>;
  explicit DiskFault(Fault fault) {
    io::disk::set_hook([fault = std::move(fault)](std::string_view call, const std::string& path) {
      if (path.find("/checkpoint-") == std::string::npos && !path.ends_with("/latest")) return 0;
      return fault(std::string(call), path);
    });
  }
  ~DiskFault() { io::disk::set_hook(nullptr); }
  DiskFault(const DiskFault&) = delete;
  DiskFault& operator=(const DiskFault&) = delete;
};

class CheckpointsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (folder_.is_owner()) {
      testing::write_tiny_model(folder_ / "model", {});
      testing::write_text(folder_ / "rows.jsonl", testing::tiny_rows(7 * world_->size()));
    }
    world_->barrier();
  }

  config::Recipe recipe_of(const std::string& out, const std::string& more) const {
    return config::parse_recipe(
        "base_model: " + folder_ / "model" + "\noutput_dir: " + folder_ / out +
            "\ndatasets: [{path: " + folder_ / "rows.jsonl" + "}]\n" +
            (more.find("save_total_limit") == std::string::npos ? "save_total_limit: 9\n" : "") +
            (more.find("learning_rate") == std::string::npos ? "learning_rate: 0.02\n" : "") + more,
        "recipe.yaml");
  }
  void run(const std::string& out, const std::string& more) const { train(recipe_of(out, more), world_); }
  std::string text_of(const std::string& name) const { return io::read_file(folder_ / name, 1 << 26); }
  std::string names_in(const std::string& out) const {
    std::string names;
    for (const auto& found : io::list_checkpoints(folder_ / out)) names += found.name + " ";
    return names;
  }
  void expect_same_tensors(const std::string& one, const std::string& other, int64_t step) const {
    for (int64_t rank = 0; rank < world_->size(); ++rank) {
      const std::string file =
          "/checkpoint-" + std::to_string(step) + "/rank-0000" + std::to_string(rank) + ".safetensors";
      EXPECT_TRUE(text_of(one + file) == text_of(other + file)) << one << " and " << other << file;
    }
  }

  std::shared_ptr<comm::Communicator> world_ = testing::world();
  testing::SharedFolder folder_{world_};
};

// The disk is slow: a save goes on beside the steps that follow, and the next save has to wait.
TEST_F(CheckpointsTest, WhatIsWrittenBehindTheStepsIsWhatTheyWere) {
  const std::string keys = "max_steps: 11\nsave_steps: 3\n";
  run("now", keys + "async_save: false\n");
  std::string told;
  {
    const DiskFault slow([](const std::string& call, const std::string&) {
      if (call == "write") std::this_thread::sleep_for(std::chrono::milliseconds(8));
      return 0;
    });
    if (folder_.is_owner()) ::testing::internal::CaptureStderr();
    run("behind", keys);
    if (folder_.is_owner()) told = ::testing::internal::GetCapturedStderr();
  }
  if (folder_.is_owner()) {
    EXPECT_EQ(names_in("behind"), "checkpoint-11 checkpoint-9 checkpoint-6 checkpoint-3 ");
    for (const int64_t step : {3, 6, 9, 11}) expect_same_tensors("behind", "now", step);
    EXPECT_TRUE(text_of("behind/model.safetensors") == text_of("now/model.safetensors"));
    EXPECT_THAT(told, HasSubstr("checkpoint-6 waits for checkpoint-3, which is still being written"));
    for (const char* step : {"3", "6", "9", "11"})
      EXPECT_THAT(told, HasSubstr("checkpoint-" + std::string(step) + " saved: "));
    EXPECT_THAT(told, HasSubstr("; training waited "));
    // The line of the step after a save tells how long the steps waited for it.
    const auto lines = testing::metrics_with(folder_ / "now/metrics.jsonl", "loss");
    ASSERT_EQ(lines.size(), 11U);
    for (const size_t after : {3U, 6U, 9U}) {
      EXPECT_TRUE(lines[after].contains("save_stall_s")) << after + 1;
      EXPECT_GT(lines[after].value("save_stall_s", 0.0), 0.0);
    }
  }
  world_->barrier();
}

TEST_F(CheckpointsTest, AFullDiskEndsTheRunOnAllRanks) {
  const std::string keys = "max_steps: 11\nsave_steps: 3\n";
  for (const std::string mode : {"async_save: true\n", "async_save: false\n"}) {
    SCOPED_TRACE(mode);
    const DiskFault full([&](const std::string& call, const std::string& path) {
      const bool is_hit = path.find("/checkpoint-") != std::string::npos &&
                          path.find("/checkpoint-3") == std::string::npos && call == "write";
      return is_hit && world_->rank() == world_->size() - 1 ? ENOSPC : 0;
    });
    expect_error(ErrorKind::Storage, {"E-STORAGE"}, [&] { run("out", keys + mode); });
    world_->barrier();
    if (folder_.is_owner()) {
      EXPECT_EQ(names_in("out"), "checkpoint-3 ");
      for (const auto& entry : fs::directory_iterator(folder_ / "out"))
        EXPECT_FALSE(io::is_partial_checkpoint(entry.path().filename())) << entry.path();
      fs::remove_all(folder_ / "out");
    }
    world_->barrier();
  }
}

// The disk fails once: the state that training has by then is saved instead.
TEST_F(CheckpointsTest, ASaveThatFailsIsTriedOnceMore) {
  const std::string keys = "max_steps: 11\nsave_steps: 3\n";
  run("whole", keys);
  for (const std::string mode : {"async_save: true\n", "async_save: false\n"}) {
    SCOPED_TRACE(mode);
    std::string told;
    {
      std::atomic<bool> has_failed = false;
      const DiskFault once([&](const std::string& call, const std::string& path) {
        const bool is_hit = path.find("checkpoint-6") != std::string::npos && call == "write" &&
                            world_->rank() == world_->size() - 1;
        return is_hit && !has_failed.exchange(true) ? EIO : 0;
      });
      if (folder_.is_owner()) ::testing::internal::CaptureStderr();
      run("out", keys + mode);
      if (folder_.is_owner()) told = ::testing::internal::GetCapturedStderr();
    }
    if (folder_.is_owner()) {
      EXPECT_THAT(told, HasSubstr("checkpoint-6 could not be saved; the current state is saved instead: "));
      const auto found = io::list_checkpoints(folder_ / "out");
      EXPECT_GE(found.size(), 3U);
      for (const auto& checkpoint : found) {
        checkpoint::ShardedCheckpoint::open(folder_ / ("out/" + checkpoint.name))->verify(0, 1);
        if (fs::exists(folder_ / ("whole/" + checkpoint.name)))
          expect_same_tensors("out", "whole", checkpoint.step);
      }
      if (mode == "async_save: false\n") {
        EXPECT_EQ(names_in("out"), "checkpoint-11 checkpoint-9 checkpoint-6 checkpoint-3 ");
      }
      EXPECT_TRUE(text_of("out/model.safetensors") == text_of("whole/model.safetensors"));
      fs::remove_all(folder_ / "out");
    }
    world_->barrier();
  }
}

TEST_F(CheckpointsTest, ARunMayGoOnWithoutACheckpoint) {
  const std::string keys = "max_steps: 11\nsave_steps: 3\non_save_error: continue\n";
  run("whole", keys);
  for (const std::string mode : {"async_save: true\n", "async_save: false\n"}) {
    SCOPED_TRACE(mode);
    std::string told;
    {
      const DiskFault full([&](const std::string& call, const std::string& path) {
        const bool is_hit = path.find("checkpoint-6") != std::string::npos && call == "write";
        return is_hit && world_->rank() == world_->size() - 1 ? ENOSPC : 0;
      });
      if (folder_.is_owner()) ::testing::internal::CaptureStderr();
      run("out", keys + mode);
      if (folder_.is_owner()) told = ::testing::internal::GetCapturedStderr();
    }
    if (folder_.is_owner()) {
      EXPECT_THAT(told, HasSubstr("checkpoint-6 could not be saved; training continues"));
      EXPECT_EQ(names_in("out"), "checkpoint-11 checkpoint-9 checkpoint-3 ");
      for (const int64_t step : {3, 9, 11}) expect_same_tensors("out", "whole", step);
      EXPECT_TRUE(text_of("out/model.safetensors") == text_of("whole/model.safetensors"));
      fs::remove_all(folder_ / "out");
    }
    world_->barrier();
  }
}

// The disk fails once, at some of the calls that a run's saves make, on one rank.
// ShardedCheckpointTest.AFailedSaveIsToldToAllAndLeavesTheOlderOne takes every call of one save.
TEST_F(CheckpointsTest, AFaultAtADiskCallLeavesWholeCheckpoints) {
  const std::string keys = "max_steps: 4\nsave_steps: 2\nlogging_steps: 4\non_save_error: continue\n";
  testing::Random random = testing::shared_random();
  std::atomic<int64_t> calls = 0;
  {
    const DiskFault counts([&](const std::string&, const std::string&) {
      ++calls;
      return 0;
    });
    run("whole", keys);
  }
  const auto of_ranks = world_->all_gather_string(std::to_string(calls));
  constexpr int kFaults = 6;
  for (int number = 0; number < kFaults; ++number) {
    const auto broken = random.in(0, std::ssize(of_ranks) - 1);
    const auto stop = random.in(1, std::stoll(of_ranks[static_cast<size_t>(broken)]));
    SCOPED_TRACE("rank " + std::to_string(broken) + " fails at call " + std::to_string(stop));
    calls = 0;
    bool has_result = true;
    {
      const DiskFault fault([&](const std::string&, const std::string&) {
        return world_->rank() == broken && ++calls == stop ? EIO : 0;
      });
      try {
        run("out", keys);
      } catch (const Error& error) {
        // The last disk calls move the checkpoints into the result.
        EXPECT_THAT(error.what(),
                    AnyOf(HasSubstr("the result is complete but cannot be put in place"),
                          HasSubstr("the result is in place, but not all files that should stay in it")));
        has_result = false;
      }
    }
    if (folder_.is_owner()) {
      if (has_result) {
        EXPECT_TRUE(text_of("out/model.safetensors") == text_of("whole/model.safetensors"));
      }
      // A fault in the last part of a save, or when leftovers are removed, leaves the checkpoint in place.
      const auto found = io::list_checkpoints(folder_ / "out");
      EXPECT_TRUE(!has_result || !found.empty());
      for (const auto& checkpoint : found) {
        checkpoint::ShardedCheckpoint::open(folder_ / ("out/" + checkpoint.name))->verify(0, 1);
        expect_same_tensors("out", "whole", checkpoint.step);
      }
      for (const char* name : {"out", "out.tessera-partial", "out.tessera-complete"})
        fs::remove_all(folder_ / name);
    }
    world_->barrier();
  }
}

// The threshold is so low that the usual noise of the loss counts as a leap.
TEST_F(CheckpointsTest, StepsThatLeapAreLeftOutOrRolledBack) {
  const std::string keys =
      "max_steps: 60\nsave_steps: 20\nlogging_steps: 5\nspike_threshold: 1\nlearning_rate: 1e-4\n";
  const std::string skips = keys + "spike_action: skip\n";
  run("whole", skips);
  run("plain", keys + "spike_action: off\n");
  run("again", skips + "resume_from_checkpoint: " + folder_ / "whole/checkpoint-40" + "\n");
  std::string told;
  if (folder_.is_owner()) ::testing::internal::CaptureStderr();
  run("back", keys + "spike_action: rollback\n");
  if (folder_.is_owner()) {
    told = ::testing::internal::GetCapturedStderr();
    EXPECT_FALSE(testing::metrics_with(folder_ / "whole/metrics.jsonl", "skipped_steps").empty());
    const std::string weights = text_of("whole/model.safetensors");
    EXPECT_TRUE(text_of("again/model.safetensors") == weights) << "what is left out is part of the state";
    EXPECT_FALSE(text_of("plain/model.safetensors") == weights);
    EXPECT_THAT(told, HasSubstr("spikes to "));
    EXPECT_THAT(told, HasSubstr("rolled back to checkpoint-"));
    EXPECT_FALSE(text_of("back/model.safetensors") == weights);
    EXPECT_EQ(names_in("back"), "checkpoint-60 checkpoint-40 checkpoint-20 ");
  }
  world_->barrier();
}

// The learning rate does not depend on the length of the run. So a run that ends right after the best
// evaluation ends with the values that this evaluation saw.
TEST_F(CheckpointsTest, TheResultIsWhatTheBestEvaluationSaw) {
  const std::string keys =
      "learning_rate: 0.05\nlr_scheduler: constant\nval_set_size: 3\neval_steps: 1\n"
      "save_total_limit: 2\n";
  const std::string size = std::to_string(world_->size());
  std::vector<std::string> layouts = {"", "save_only_model: true\nsave_steps: 4\n"};
  if (world_->size() == 2) {
    layouts.insert(layouts.end(), {"tensor_parallel_size: 2\n", "pipeline_parallel_size: 2\n"});
  } else if (world_->size() > 1) {
    layouts.insert(layouts.end(), {"context_parallel_size: " + size + "\n", "zero_stage: 1\n"});
  }
  int number = 0;
  for (const std::string& layout : layouts) {
    SCOPED_TRACE(layout);
    const std::string best = "best" + std::to_string(++number), until = "until" + std::to_string(number);
    const bool is_plain = layout.empty();
    run(best, keys + layout +
                  "max_steps: 12\nload_best_model_at_end: true\nmetric_for_best_model: eval_loss\n" +
                  (is_plain ? "save_strategy: best\n" : ""));
    // All ranks read the file that the first one has written.
    world_->barrier();
    int64_t best_step = 0;
    double least = 1e9, last = 0.0;
    for (const auto& line : testing::metrics_with(folder_ / (best + "/metrics.jsonl"), "eval_loss")) {
      last = line.at("eval_loss");
      if (last >= least) continue;
      least = last;
      best_step = line.at("step");
    }
    ASSERT_GT(last, least) << "the last evaluation should not be the best";
    ASSERT_GT(best_step, 1) << "nor the first";
    run(until, keys + "max_steps: " + std::to_string(best_step) + "\n" + layout);
    if (is_plain) {
      // A run that goes on in another folder finds the best checkpoint.
      run("again", keys + "max_steps: 12\nload_best_model_at_end: true\nresume_from_checkpoint: " +
                       folder_ / (best + "/checkpoint-12") + "\n");
    }
    if (folder_.is_owner()) {
      EXPECT_TRUE(text_of(best + "/model.safetensors") == text_of(until + "/model.safetensors"));
      EXPECT_EQ(names_in(best), "checkpoint-12 checkpoint-" + std::to_string(best_step) + " ");
      if (is_plain) {
        EXPECT_TRUE(text_of("again/model.safetensors") == text_of(best + "/model.safetensors"));
      }
    }
    world_->barrier();
  }
}

// If the best checkpoint could not be saved, this is reported, and the last values are the result.
TEST_F(CheckpointsTest, WithoutTheBestCheckpointTheLastValuesAreTheResult) {
  const std::string keys =
      "learning_rate: 0.05\nlr_scheduler: constant\nval_set_size: 3\neval_steps: "
      "1\nmax_steps: 12\n";
  run("last", keys);
  std::string told;
  {
    const DiskFault full([&](const std::string& call, const std::string& path) {
      return path.find("checkpoint-12") == std::string::npos && call == "write" ? ENOSPC : 0;
    });
    if (folder_.is_owner()) ::testing::internal::CaptureStderr();
    run("best", keys + "load_best_model_at_end: true\non_save_error: continue\n");
    if (folder_.is_owner()) told = ::testing::internal::GetCapturedStderr();
  }
  if (folder_.is_owner()) {
    EXPECT_THAT(told, HasSubstr("there is no complete checkpoint of the best evaluation, after step "));
    EXPECT_TRUE(text_of("best/model.safetensors") == text_of("last/model.safetensors"));
  }
  world_->barrier();
}

TEST_F(CheckpointsTest, AMetricThatNothingGivesIsRefusedBeforeTheFirstStep) {
  expect_error(ErrorKind::Config, {"metric_for_best_model", "eval_rows_loss", "need eval_loss"}, [&] {
    run("out",
        "max_steps: 2\nval_set_size: 3\nload_best_model_at_end: true\n"
        "metric_for_best_model: eval_rows_loss\n");
  });
}

TEST_F(CheckpointsTest, ACheckpointOfTheModelAloneIsSmallAndNoPlaceToGoOnFrom) {
  const std::string keys = "max_steps: 4\nsave_steps: 2\n";
  run("all", keys);
  run("model_alone", keys + "save_only_model: true\n");
  if (folder_.is_owner()) {
    const std::string file = "/checkpoint-2/rank-00000.safetensors";
    EXPECT_LT(text_of("model_alone" + file).size() * 2, text_of("all" + file).size());
    EXPECT_TRUE(text_of("model_alone/model.safetensors") == text_of("all/model.safetensors"));
  }
  world_->barrier();
  expect_error(ErrorKind::Checkpoint, {"E-CKPT-ONLY-MODEL", "save_only_model"}, [&] {
    run("again", keys + "resume_from_checkpoint: " + folder_ / "model_alone/checkpoint-2" + "\n");
  });
}

}  // namespace
}  // namespace tessera::train
