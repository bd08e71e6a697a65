// Tests that a run which goes on from a checkpoint gives the numbers of one that never stopped.
#include "tessera/train/run/resume.h"

#include <cerrno>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/checkpoint/save_checkpoint.h"
#include "tessera/config/load_recipe.h"
#include "tessera/core/log.h"
#include "tessera/io/checkpoint_folders.h"
#include "tessera/io/disk_calls.h"
#include "tessera/train/run/changed_keys.h"
#include "tessera/train/run/trainer.h"

#include "tests/io/expect_error.h"
#include "tests/testing/extent.h"
#include "tests/testing/mpi_world.h"
#include "tests/testing/shared_random.h"
#include "tests/testing/tiny_model.h"
#include "tests/train/train_testing.h"
#include "tests/train/training_testing.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;
using testing::expect_error;

constexpr int64_t kSteps = 11;

struct RunCase {
  const char* what;
  const char* keys;
};

class ResumeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (folder_.is_owner()) {
      testing::write_tiny_model(folder_ / "model", {});
      testing::write_text(folder_ / "rows.jsonl", testing::tiny_rows(7 * world_->size()));
      testing::write_text(folder_ / "others.jsonl", testing::tiny_rows(7 * world_->size() - 1));
    }
    world_->barrier();
  }

  // Returns a recipe with epochs of seven steps and checkpoints after steps 3, 6, 9 and 11, unless `more`
  // says otherwise.
  config::Recipe recipe_of(const std::string& out, const std::string& more) const {
    std::string text = "base_model: " + folder_ / "model" + "\noutput_dir: " + folder_ / out +
                       "\nmax_steps: " + std::to_string(kSteps) + "\n" + more;
    const std::pair<std::string, std::string> keys[] = {
        {"learning_rate", "0.02"},
        {"save_steps", "3"},
        {"save_total_limit", "9"},
        {"datasets", "[{path: " + folder_ / "rows.jsonl" + "}]"}};
    for (const auto& [key, value] : keys) {
      if (more.find(key + ":") == std::string::npos) text += key + ": " + value + "\n";
    }
    return config::parse_recipe(text, "recipe.yaml");
  }
  void run(const std::string& out, const std::string& more) const { train(recipe_of(out, more), world_); }

  std::string text_of(const std::string& name) const { return io::read_file(folder_ / name, 1 << 26); }
  std::string from(const std::string& checkpoint) const {
    return "resume_from_checkpoint: " + folder_ / checkpoint + "\n";
  }
  // Returns the lines of metrics.jsonl without the values that differ from run to run.
  std::vector<std::string> lines_of(const std::string& out) const {
    std::vector<std::string> lines;
    for (const auto& line : testing::metrics_with(folder_ / (out + "/metrics.jsonl"), "step")) {
      std::string text = line.at("step").dump();
      for (const char* key : {"epoch", "loss", "lr", "grad_norm", "tokens", "label_tokens", "eval_loss"}) {
        if (line.contains(key)) text += std::string(" ") + key + " " + line.at(key).dump();
      }
      lines.push_back(text);
    }
    return lines;
  }

  std::shared_ptr<comm::Communicator> world_ = testing::world();
  testing::SharedFolder folder_{world_};
};

TEST_F(ResumeTest, TheSameLayoutGivesTheSameBytes) {
  testing::Random random = testing::shared_random();
  const std::vector<RunCase> cases = {
      {"full", ""},
      {"accumulation, evaluation, lines of several steps",
       "gradient_accumulation_steps: 2\nval_set_size: 2\neval_steps: 2\nlogging_steps: 4\n"},
      {"bfloat16, packing", "dtype: bfloat16\nsample_packing: true\nsequence_len: 48\nzero_stage: 1\n"},
      {"SGD", "optimizer: sgd\nzero_stage: 0\n"},
      {"a learning rate that falls by the evaluations",
       "lr_scheduler: reduce_lr_on_plateau\nlr_plateau_patience: 0\nlr_plateau_factor: "
       "0.5\nlr_plateau_threshold: "
       "0.4\nval_set_size: 2\neval_steps: 2\n"},
      {"states in bfloat16", "optimizer_state_dtype: bfloat16\n"},
      {"an average to evaluate and save",
       "optimizer: schedule_free_adamw\nlr_scheduler: constant\nval_set_size: 2\neval_steps: 2\n"},
      {"states in 8 bits", "optimizer: adamw_8bit\n"},
      {"rows and columns of squares", "optimizer: came_pytorch\nlearning_rate: 0.002\n"},
      {"whole matrices", "optimizer: muon\n"},
      {"singular vectors", "optimizer: galore_adamw\noptimizer_args: {rank: 4, update_proj_gap: 4}\n"},
      {"random projections",
       "optimizer: apollo_adamw\noptimizer_args: {rank: 4, update_proj_gap: 4}\n"
       "optim_target_modules: [self_attn, '.*mlp[.](up|down)_proj']\n"},
      {"weights in bfloat16", "pure_bf16: true\noptimizer: adamw_8bit\n"},
      {"updates in the backward", "update_in_backward: true\nmax_grad_norm: 0\n"},
      // The second stop comes right before a restart, or the first one behind one.
      {"restarts of an adapter",
       "adapter: lora\nlora_target_linear: true\nrelora: true\njagged_restart_steps: 3\n"
       "jagged_restart_warmup_steps: 1\n"},
      {"adapter", "adapter: lora\nlora_target_linear: true\nlora_dropout: 0.2\n"},
  };
  int number = 0;
  for (const RunCase& c : testing::some_of(cases, 5, random)) {
    SCOPED_TRACE(c.what);
    const std::string whole = "whole" + std::to_string(++number), first = "first" + std::to_string(number),
                      second = "second" + std::to_string(number);
    run(whole, c.keys);
    // The run is stopped twice, the second time after it has gone on from the first stop.
    const int64_t stop = 3 * random.in(1, 2), again = stop + 3;
    SCOPED_TRACE("stopped after steps " + std::to_string(stop) + " and " + std::to_string(again));
    run(first, c.keys + from(whole + "/checkpoint-" + std::to_string(stop)));
    run(second, c.keys + from(first + "/checkpoint-" + std::to_string(again)));
    if (folder_.is_owner()) {
      const std::string weights =
          std::string(c.what) == "adapter" ? "/adapter_model.safetensors" : "/model.safetensors";
      for (const std::string& resumed : {first, second}) {
        EXPECT_EQ(lines_of(resumed), lines_of(whole));
        const bool falls = std::string(c.keys).find("plateau") != std::string::npos;
        if (falls) {
          const auto lines = testing::metrics_with(folder_ / (whole + "/metrics.jsonl"), "lr");
          EXPECT_EQ(lines.front().at("lr"), 0.02);
          EXPECT_LT(lines.back().at("lr").get<double>(), 0.011);
        }
        EXPECT_TRUE(text_of(resumed + weights) == text_of(whole + weights)) << "other weights";
        // The files hold the optimizer states too.
        for (int64_t rank = 0; rank < world_->size(); ++rank) {
          const std::string file = "/checkpoint-11/rank-0000" + std::to_string(rank) + ".safetensors";
          EXPECT_TRUE(text_of(resumed + file) == text_of(whole + file)) << file;
        }
      }
    }
    world_->barrier();
  }
}

// States on a drive change no byte of a run: neither its lines nor its checkpoints, from either of which the
// other goes on.
TEST_F(ResumeTest, StatesOnADriveGiveTheBytesOfStatesInMemory) {
  const std::string drive =
      "offload_optimizer_device: nvme\noffload_optimizer_nvme_path: " + folder_ / "drive" +
      "\noffload_optimizer_buffer_count: 3\naio_queue_depth: 4\n";
  const std::vector<RunCase> cases = {
      {"adamw", ""},
      {"states in bfloat16", "optimizer_state_dtype: bfloat16\nzero_stage: 1\n"},
      {"an average",
       "optimizer: schedule_free_adamw\nlr_scheduler: constant\nval_set_size: 2\neval_steps: 2\n"},
      {"whole matrices", "optimizer: muon\n"},
  };
  testing::Random random = testing::shared_random();
  int number = 0;
  for (const RunCase& c : testing::some_of(cases, 2, random)) {
    SCOPED_TRACE(c.what);
    const std::string memory = "memory" + std::to_string(++number),
                      spilled = "spilled" + std::to_string(number), there = "there" + std::to_string(number),
                      back = "back" + std::to_string(number);
    run(memory, c.keys);
    run(spilled, c.keys + drive);
    run(there, c.keys + drive + from(memory + "/checkpoint-3"));
    run(back, c.keys + from(spilled + "/checkpoint-6"));
    if (folder_.is_owner()) {
      for (const std::string& other : {spilled, there, back}) {
        EXPECT_EQ(lines_of(other), lines_of(memory)) << other;
        for (int64_t rank = 0; rank < world_->size(); ++rank) {
          const std::string file = "/checkpoint-11/rank-0000" + std::to_string(rank) + ".safetensors";
          EXPECT_TRUE(text_of(other + file) == text_of(memory + file)) << other << file;
        }
      }
      const auto lines = testing::metrics_with(folder_ / (spilled + "/metrics.jsonl"), "states");
      ASSERT_EQ(std::ssize(lines), kSteps);
      EXPECT_GT(lines.back().at("states").at("bytes_read"), 0);
      EXPECT_TRUE(fs::is_empty(folder_ / "drive"));
    }
    world_->barrier();
  }
}

// The run ends with the reason, and goes on from its last checkpoint as if nothing had been.
TEST_F(ResumeTest, ADriveThatFailsLeavesTheLastCheckpointWhole) {
  if (!folder_.is_owner()) return;
  const auto alone = [&](const std::string& out, const std::string& more) {
    train(recipe_of(out, more), comm::Communicator::single());
  };
  const std::string drive =
      "offload_optimizer_device: nvme\noffload_optimizer_nvme_path: " + folder_ / "drive" + "\n";
  alone("memory", "");
  for (const std::string call : {"read", "write"}) {
    io::disk::set_transfer_hook([&](std::string_view name, const std::string&, int64_t num_bytes) {
      const bool fails = name == call && fs::exists(folder_ / "failed/checkpoint-3");
      return fails ? -int64_t{ENOSPC} : num_bytes;
    });
    expect_error(ErrorKind::Storage, {"E-STORAGE-NO-SPACE", "cannot " + call, folder_ / "drive", "free"},
                 [&] { alone("failed", drive); });
    io::disk::set_transfer_hook({});
    alone("goes_on", from("failed/checkpoint-3"));
    EXPECT_EQ(lines_of("goes_on"), lines_of("memory"));
    EXPECT_TRUE(text_of("goes_on/model.safetensors") == text_of("memory/model.safetensors"));
    fs::remove_all(folder_ / "failed");
    fs::remove_all(folder_ / "goes_on");
    EXPECT_TRUE(fs::is_empty(folder_ / "drive"));
  }
}

// A checkpoint of all ranks is continued by one process, and by all ranks under another layout. The one
// process sees the rows of a step as several micro-batches.
TEST_F(ResumeTest, AnotherLayoutGivesTheSameNumbers) {
  const std::string all = "dtype: float64\n";
  run("whole", all);
  run("other", all + "zero_stage: 0\n" + from("whole/checkpoint-6"));
  if (folder_.is_owner()) {
    const std::string accumulation = "gradient_accumulation_steps: " + std::to_string(world_->size()) + "\n";
    train(recipe_of("alone", all + accumulation + from("whole/checkpoint-3")), comm::Communicator::single());
  }
  world_->barrier();
  if (folder_.is_owner()) {
    const auto want = testing::metrics_with(folder_ / "whole/metrics.jsonl", "loss");
    for (const char* out : {"other", "alone"}) {
      const auto got = testing::metrics_with(folder_ / (std::string(out) + "/metrics.jsonl"), "loss");
      ASSERT_EQ(got.size(), want.size()) << out;
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_EQ(got[i].at("step"), want[i].at("step"));
        EXPECT_EQ(got[i].at("tokens"), want[i].at("tokens")) << "other rows";
        EXPECT_NEAR(got[i].at("loss"), want[i].at("loss").get<double>(), 1e-9) << out << " step " << i + 1;
      }
    }
  }
  world_->barrier();
  // All ranks also go on from a checkpoint of the one process, with their states on a drive.
  run("back", all + "offload_optimizer_device: nvme\noffload_optimizer_nvme_path: " + folder_ / "drive" +
                  "\n" + from("alone/checkpoint-9"));
  if (folder_.is_owner()) {
    const auto want = testing::metrics_with(folder_ / "whole/metrics.jsonl", "loss");
    const auto got = testing::metrics_with(folder_ / "back/metrics.jsonl", "loss");
    ASSERT_EQ(got.size(), want.size());
    EXPECT_NEAR(got.back().at("loss"), want.back().at("loss").get<double>(), 1e-9);
  }
  world_->barrier();
}

// Ranks along these axes share micro-batches: each rank reads those of all.
TEST_F(ResumeTest, EveryAxisGoesOnFromAnyOther) {
  const int64_t ranks = world_->size();
  if (ranks == 1) return;
  const std::string all = "dtype: float64\n", n = std::to_string(ranks);
  run("whole", all);
  for (const std::string axis : {"context_parallel_size", "tensor_parallel_size", "pipeline_parallel_size"}) {
    if (ranks > 2 && axis != "context_parallel_size") continue;  // the model has too few heads and layers
    SCOPED_TRACE(axis);
    const std::string keys = all + "gradient_accumulation_steps: " + n + "\n" + axis + ": " + n + "\n";
    run(axis, keys + from("whole/checkpoint-3"));
    run("after_" + axis, all + from(axis + "/checkpoint-6"));
    if (folder_.is_owner()) {
      const auto want = testing::metrics_with(folder_ / "whole/metrics.jsonl", "loss");
      for (const std::string& out : {axis, "after_" + axis}) {
        const auto got = testing::metrics_with(folder_ / (out + "/metrics.jsonl"), "loss");
        ASSERT_EQ(got.size(), want.size()) << out;
        for (size_t i = 0; i < want.size(); ++i) {
          EXPECT_NEAR(got[i].at("loss"), want[i].at("loss").get<double>(), 1e-9) << out << " step " << i + 1;
          EXPECT_NEAR(got[i].at("grad_norm"), want[i].at("grad_norm").get<double>(), 1e-8)
              << out << " step " << i + 1;
        }
      }
    }
    world_->barrier();
  }
}

// Makes the folder what a killed run leaves: checkpoints up to `step`, and no result.
void forget_after(const std::string& out, int64_t step) {
  for (const auto& entry : fs::directory_iterator(out)) {
    const std::string name = entry.path().filename();
    const bool stays = name.starts_with("checkpoint-") && std::stoll(name.substr(11)) <= step;
    if (!stays && name != "latest") fs::remove_all(entry.path());
  }
}

void damage(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-5, std::ios::end);
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(-5, std::ios::end);
  file.put(byte);
}

// Writes a manifest with another value in its state, and with a checksum that fits it.
void change_state(const std::string& folder, checkpoint::Manifest manifest, const std::string& path,
                  const nlohmann::ordered_json& value) {
  manifest.state.at(nlohmann::ordered_json::json_pointer(path)) = value;
  io::write_file_atomic(folder + "/manifest.json", checkpoint::manifest_text(manifest));
}

TEST_F(ResumeTest, ADamagedCheckpointIsToldAndPassedOver) {
  run("whole", "");
  const std::string again = "auto_resume_from_checkpoints: true\n";
  run("out", again);
  if (folder_.is_owner()) {
    forget_after(folder_ / "out", 9);
    damage(folder_ / "out/checkpoint-9/rank-00000.safetensors");
    const std::string other = folder_ / "out/checkpoint-6";
    change_state(other, checkpoint::read_manifest(other), "/training/tokens", "many");
    ::testing::internal::CaptureStderr();
  }
  world_->barrier();
  run("out", again);
  if (folder_.is_owner()) {
    const std::string told = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(told, ::testing::HasSubstr("checkpoint-9 is incomplete or damaged and is skipped"));
    EXPECT_THAT(told, ::testing::HasSubstr("are damaged"));
    EXPECT_THAT(told, ::testing::HasSubstr("checkpoint-6 is incomplete or damaged and is skipped"));
    EXPECT_THAT(told, ::testing::HasSubstr("another type in 'training' of its state"));
    EXPECT_THAT(told, ::testing::HasSubstr("checkpoint-3, after step 3"));
    EXPECT_EQ(lines_of("out"), lines_of("whole"));
    EXPECT_TRUE(text_of("out/model.safetensors") == text_of("whole/model.safetensors"));
    forget_after(folder_ / "out", 9);
    for (const char* step : {"3", "6", "9"})
      damage(folder_ / ("out/checkpoint-" + std::string(step) + "/rank-00000.safetensors"));
  }
  world_->barrier();
  expect_error(ErrorKind::Checkpoint, {"E-CKPT-NONE-WHOLE"}, [&] { run("out", again); });
}

TEST_F(ResumeTest, CheckpointsStayWithTheResultAndNoMoreThanAskedFor) {
  run("out", "save_total_limit: 2\n");
  const auto names = [&] {
    std::string names;
    for (const auto& found : io::list_checkpoints(folder_ / "out")) names += found.name + " ";
    return names;
  };
  EXPECT_EQ(names(), "checkpoint-11 checkpoint-9 ");
  world_->barrier();
  // A new run that replaces the old one has only its own checkpoints.
  run("out", "overwrite_output_dir: true\nsave_steps: 7\n");
  EXPECT_EQ(names(), "checkpoint-11 checkpoint-7 ");
  world_->barrier();
  run("out", "overwrite_output_dir: true\nsave_strategy: no\nsave_steps: 0\n");
  EXPECT_EQ(names(), "");
}

TEST_F(ResumeTest, AnOlderResultIsSetAsideAndFilesOfOthersStay) {
  const std::string failing = "loss_watchdog_threshold: 0.0001\nloss_watchdog_patience: 5\n";
  run("out", "save_strategy: no\nsave_steps: 0\n");
  const std::string older = text_of("out/model.safetensors");
  world_->barrier();
  expect_error(ErrorKind::Numerics, {"E-NUMERICS"},
               [&] { run("out", "overwrite_output_dir: true\n" + failing); });
  if (folder_.is_owner()) {
    EXPECT_TRUE(fs::exists(folder_ / "out/checkpoint-3"));
    EXPECT_FALSE(fs::exists(folder_ / "out/model.safetensors")) << "it is not of the checkpoint beside it";
    EXPECT_TRUE(text_of("out/older-result/model.safetensors") == older);
    fs::create_directories(folder_ / "out/model-3");
    testing::write_text(folder_ / "out/model-3/config.json", "mine");
  }
  world_->barrier();
  run("out", "auto_resume_from_checkpoints: true\n");
  if (folder_.is_owner()) {
    EXPECT_TRUE(fs::exists(folder_ / "out/model.safetensors"));
    EXPECT_FALSE(fs::exists(folder_ / "out/older-result"));
    EXPECT_EQ(text_of("out/model-3/config.json"), "mine");
  }
  world_->barrier();
}

TEST_F(ResumeTest, ACheckpointByTimeServesARestartAlone) {
  if (folder_.is_owner()) ::testing::internal::CaptureStderr();
  world_->barrier();
  run("out", "save_strategy: no\nsave_steps: 0\nsave_minutes: 0.000001\n");
  if (folder_.is_owner()) {
    const std::string told = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(told, ::testing::HasSubstr("checkpoint-2 saved"));
    EXPECT_THAT(told, ::testing::Not(::testing::HasSubstr("checkpoint-11 saved"))) << "the result follows";
    EXPECT_TRUE(io::list_checkpoints(folder_ / "out").empty()) << "they go with the result";
    EXPECT_TRUE(fs::exists(folder_ / "out/model.safetensors"));
  }
  world_->barrier();
  // Beside checkpoints that the recipe asks for, those by time go with the next one.
  run("both", "save_steps: 6\nsave_minutes: 0.000001\n");
  if (folder_.is_owner()) {
    std::string names;
    for (const auto& found : io::list_checkpoints(folder_ / "both")) names += found.name + " ";
    EXPECT_EQ(names, "checkpoint-11 checkpoint-6 ");
  }
  world_->barrier();
}

TEST_F(ResumeTest, TheGlobalBatchStaysUnlessTheRecipeSaysOtherwise) {
  const int64_t total = 2 * world_->size();
  run("whole", "gradient_accumulation_steps: 2\n");
  const std::string resumed = from("whole/checkpoint-3");
  const auto told = [&](const std::string& out, const std::string& keys) {
    if (folder_.is_owner()) ::testing::internal::CaptureStderr();
    world_->barrier();
    run(out, resumed + keys);
    return folder_.is_owner() ? ::testing::internal::GetCapturedStderr() : std::string();
  };
  const std::string kept = told("kept", "micro_batch_size: 2\ngradient_accumulation_steps: 3\n");
  if (folder_.is_owner()) {
    EXPECT_THAT(kept,
                ::testing::HasSubstr(
                    "the global batch stays at the " + std::to_string(total) +
                    " sequences per step of the checkpoint's run: gradient_accumulation_steps is 1, not 3"));
    const auto want = testing::metrics_with(folder_ / "whole/metrics.jsonl", "loss");
    const auto got = testing::metrics_with(folder_ / "kept/metrics.jsonl", "loss");
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i].at("loss"), want[i].at("loss").get<double>(), 1e-4) << i;
  }
  world_->barrier();
  const std::string changed = told("changed", "global_batch_size: " + std::to_string(2 * total) + "\n");
  if (folder_.is_owner()) {
    EXPECT_THAT(changed, ::testing::HasSubstr("another global_batch_size: " + std::to_string(2 * total) +
                                              " sequences per step instead of " + std::to_string(total)));
  }
  expect_error(ErrorKind::Config, {"E-CONFIG-GLOBAL-BATCH", "micro_batch_size 3", std::to_string(total)},
               [&] { run("other", resumed + "micro_batch_size: 3\n"); });
}

TEST_F(ResumeTest, WhatIsNotThatRunIsRefused) {
  run("whole", "");
  const std::string resumed = from("whole/checkpoint-3");
  expect_error(ErrorKind::Data, {"E-DATA-CHANGED", "checkpoint-3"},
               [&] { run("other", resumed + "datasets:\n  - path: " + folder_ / "others.jsonl" + "\n"); });
  expect_error(ErrorKind::Data, {"E-DATA-CHANGED"}, [&] { run("other", resumed + "seed: 7\n"); });
  expect_error(ErrorKind::Checkpoint, {"E-CKPT-"},
               [&] { run("other", resumed + "adapter: lora\nlora_target_linear: true\n"); });
  expect_error(ErrorKind::Checkpoint, {"E-CKPT-TENSORS", "exp_avg"},
               [&] { run("other", resumed + "optimizer: sgd\n"); });
  expect_error(ErrorKind::Checkpoint, {"E-CKPT-"}, [&] { run("other", from("whole/checkpoint-4")); });
  if (folder_.is_owner()) {
    EXPECT_FALSE(fs::exists(folder_ / "other"));
    ::testing::internal::CaptureStderr();
  }
  world_->barrier();
  run("slower", resumed + "learning_rate: 0.01\n");
  if (folder_.is_owner()) {
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                ::testing::HasSubstr("the run continues with another learning_rate"));
  }
  world_->barrier();
}

TEST_F(ResumeTest, StatesTakeAnotherTypeWithAWord) {
  const std::string narrow = "optimizer_state_dtype: bfloat16\n";
  run("wide", "");
  run("narrow", narrow);
  const auto goes_on = [&](const std::string& out, const std::string& keys, const std::string& word) {
    if (folder_.is_owner()) ::testing::internal::CaptureStderr();
    world_->barrier();
    run(out, keys);
    if (!folder_.is_owner()) return;
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::HasSubstr(word));
    const auto want = testing::metrics_with(folder_ / "wide/metrics.jsonl", "loss");
    const auto got = testing::metrics_with(folder_ / (out + "/metrics.jsonl"), "loss");
    ASSERT_EQ(got.size(), want.size());
    EXPECT_NEAR(got.back().at("loss"), want.back().at("loss").get<double>(),
                0.05 * want.back().at("loss").get<double>());
  };
  goes_on("narrowed", narrow + from("wide/checkpoint-6"),
          "the run continues with another optimizer_state_dtype: \"bfloat16\" instead of \"float32\"");
  world_->barrier();
  goes_on("widened", from("narrow/checkpoint-6"),
          "the run continues with another optimizer_state_dtype: \"float32\" instead of \"bfloat16\"");
  world_->barrier();
}

TEST_F(ResumeTest, AKeyThatAnOlderProgramDidNotKnowHadItsDefault) {
  const config::Recipe recipe = recipe_of("out", "");
  testing::TinyTraining run(recipe, world_);
  RunInputs inputs;
  inputs.recipe = config::dump_recipe(recipe);
  RunInputs older = inputs;
  const size_t line = older.recipe.find("\noptimizer_state_dtype:");
  ASSERT_NE(line, std::string::npos);
  older.recipe.erase(line, older.recipe.find('\n', line + 1) - line);
  checkpoint::save_checkpoint(run.training.tensors(), {1, "a-run", to_json(older), {}}, folder_ / "old",
                              *world_);
  const auto found = checkpoint::ShardedCheckpoint::open(folder_ / "old/checkpoint-1");
  const auto told = [&] {
    ::testing::internal::CaptureStderr();
    check_resumable(*found, inputs, run.training.trained(), recipe);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(told(), "");
  inputs.recipe += "optimizer_state_dtype: \"bfloat16\"\n";
  inputs.recipe.erase(inputs.recipe.find("\noptimizer_state_dtype: \"float32\""), 33);
  if (folder_.is_owner()) {
    EXPECT_THAT(told(), ::testing::HasSubstr("optimizer_state_dtype: \"bfloat16\" instead of \"float32\""));
  }
  world_->barrier();
}

TEST(ChangedKeysTest, AKeyCountsUnlessItChangesNoNumber) {
  const std::string base = "base_model: m\nlearning_rate: 1e-3\ndatasets: [{path: d.jsonl, type: alpaca}]\n";
  const auto changed = [&](const std::string& before, const std::string& now) {
    std::string names;
    const auto dumped = [&](const std::string& keys) {
      return config::dump_recipe(config::parse_recipe(base + keys, "r.yaml"));
    };
    for (const ChangedKey& key : changed_keys(dumped(before), dumped(now))) names += key.name + ' ';
    return names;
  };
  const std::string groups = "lr_groups:\n- {name: head, modules: [lm_head], lr: ";
  const std::string plateau = "lr_scheduler: reduce_lr_on_plateau\nval_set_size: 10\neval_steps: ";
  struct Case {
    std::string before, now, names;
  };
  for (const Case& each : std::initializer_list<Case>{
           {"", "z_loss_coef: 0.1\n", "z_loss_coef "},
           {"", "label_smoothing_factor: 0.1\n", "label_smoothing_factor "},
           {"", "neftune_noise_alpha: 5\n", "neftune_noise_alpha "},
           {"", "embedding_lr: 1e-5\n", "embedding_lr "},
           {"", "lr_end: 1e-5\n", "lr_end "},
           {"", "spike_action: skip\n", "spike_action "},
           {groups + "1e-4}\n", groups + "1e-5}\n", "lr_groups "},
           {"warmup_steps: 4\n", "", "warmup_steps "},
           {groups + "1e-4}\n", "", "lr_groups "},
           {plateau + "3\n", plateau + "4\n", "eval_steps "},
           {"val_set_size: 10\neval_steps: 3\n", "val_set_size: 10\neval_steps: 4\n", ""},
           {"", "save_steps: 3\nlogging_steps: 2\nuse_otel_metrics: true\nzero_stage: 1\nhub_model_id: o/n\n",
            ""}})
    EXPECT_EQ(changed(each.before, each.now), each.names) << each.now;
}

// Every value of the notes is changed to one of another type, which no run may go on from.
TEST_F(ResumeTest, NotesOfOtherTypesAreDamage) {
  run("out", "");
  if (!folder_.is_owner()) return;
  const std::string folder = folder_ / "out/checkpoint-3";
  const checkpoint::Manifest sound = checkpoint::read_manifest(folder);
  const auto check = [&] { check_notes(*checkpoint::ShardedCheckpoint::open(folder)); };
  check();
  int64_t changed = 0;
  const nlohmann::ordered_json flat = sound.state.flatten();
  for (const auto& [path, value] : flat.items()) {
    SCOPED_TRACE(path);
    // Lists and tables may be empty; of what they hold no value need be like another.
    if (value.is_null() || path.starts_with("/training/guard/") || path.find("traffic") != std::string::npos)
      continue;
    for (const nlohmann::ordered_json& other : {nlohmann::ordered_json("text"), nlohmann::ordered_json(7),
                                                nlohmann::ordered_json(true), nlohmann::ordered_json()}) {
      if (other.type() == value.type() || (value.is_number() && other.is_number())) continue;
      change_state(folder, sound, path, other);
      expect_error(ErrorKind::Checkpoint, {"E-CKPT-MANIFEST", folder}, check);
      ++changed;
    }
  }
  EXPECT_GT(changed, 40);
  change_state(folder, sound, "/training/step", 4);
  expect_error(ErrorKind::Checkpoint, {"E-CKPT-MANIFEST", "step 4, not 3"}, check);
}

TEST(TrainStateTest, GoesThroughJson) {
  TrainState state;
  state.step = 7;
  state.cursor = {2, 31, {{1, 2, 3, 4, 5, 6, 7, 8}, {}}};
  state.tokens = int64_t{1} << 40;
  state.first_loss = 1.0 / 3.0;
  state.last_loss = 0.1;
  StepMetrics step;
  step.loss = 0.7;
  step.tokens = 5;
  step.label_tokens = 3;
  step.step_s = 0.1;
  step.sol = 1.0 / 7.0;
  state.window.add(step);
  TrainState read = train_state_from(nlohmann::ordered_json::parse(to_json(state).dump()));
  EXPECT_EQ(to_json(read), to_json(state));
  EXPECT_EQ(read.cursor, state.cursor);
  step.step = 8;
  state.window.add(step);
  read.window.add(step);
  const StepMetrics want = state.window.take(), got = read.window.take();
  EXPECT_EQ(got.loss, want.loss);
  EXPECT_EQ(got.sol, want.sol);
  EXPECT_EQ(got.step_s, want.step_s);
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_THROW(train_state_from(nlohmann::ordered_json::object()), nlohmann::json::exception);
}

}  // namespace
}  // namespace tessera::train
