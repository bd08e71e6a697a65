// Tests of runs that are killed and started again, as a user does it.
#include <bit>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <sys/prctl.h>

#include <linux/capability.h>

#include "tests/integration/fixture.h"
#include "tests/testing/extent.h"
#include "tests/testing/processes.h"
#include "tests/testing/read_faults.h"
#include "tests/testing/skip.h"
#include "tests/testing/small_disk.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public ProgramTest {
 protected:
  const Words saving_ = {"max_steps=60", "save_steps=3", "save_total_limit=2",
                         "auto_resume_from_checkpoints=true", "overwrite_output_dir=false"};

  Words saving(const Words& more) const { return with(saving_, more); }
};

// Kills all ranks, or one of them, at random moments and starts the run again, until it ends.
TEST_F(CheckpointTest, AKilledRunGoesOnAsIfNothingHadBeen) {
  train_well({"max_steps=60", "--nproc", "2", "output_dir=whole"});
  Random random;
  const int most_kills = runs_all_cases() ? 6 : 3;
  int kills = 0;
  for (bool has_ended = false; !has_ended;) {
    SCOPED_TRACE("start " + std::to_string(kills));
    const int64_t before = newest();
    const int64_t until = before + 3 * random.in(1, 3);
    const auto delay = static_cast<useconds_t>(random.in(0, 29999));
    const bool kills_all = random.in(0, 1) == 0;
    const int64_t rank = random.in(0, 1);
    bool is_killed = false;
    RunOptions options;
    options.while_running = [&](pid_t id) {
      if (kills == most_kills || is_killed || newest() < std::min<int64_t>(until, 57)) return;
      usleep(delay);
      if (kills_all) {
        for (const auto& [process, command] : processes_below(id)) kill(process, SIGKILL);
        kill(id, SIGKILL);
      } else if (const auto ranks = ranks_below(id); ranks.size() == 2) {
        kill(ranks[rank], SIGKILL);
      }
      is_killed = true;
    };
    const ProgramResult result = train(saving({"--nproc", "2"}), options);
    has_ended = result.exit_code == 0;
    kills += is_killed ? 1 : 0;
    ASSERT_TRUE(has_ended || is_killed) << result.told();
    ASSERT_GE(newest(), before) << result.told();
    // If less than a checkpoint is missing to the end, the run is killed while it starts.
    if (before > 0 && newest() > before) {
      EXPECT_NE(result.err.find("after step " + std::to_string(before)), std::string::npos) << result.told();
    }
  }
  EXPECT_GT(kills, 0);
  EXPECT_TRUE(read_text(out("model.safetensors")) == read_text(here / "whole/model.safetensors"));
  EXPECT_EQ(losses(out()), losses(here / "whole"));
  Words names;
  for (const auto& entry : fs::directory_iterator(out())) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (Words{"checkpoint-57", "checkpoint-60", "runs"}));
  for (const std::string& name : here.entries()) EXPECT_EQ(name.find("tessera-"), std::string::npos) << name;
}

TEST_F(CheckpointTest, AFinishedRunEndsAgainAtOnce) {
  train_well(saving({"max_steps=7"}));
  const std::string weights = read_text(out("model.safetensors"));
  const auto before = losses(out());
  train_well(saving({"max_steps=7"}));
  EXPECT_TRUE(read_text(out("model.safetensors")) == weights);
  EXPECT_EQ(losses(out()), before);
  // The run goes on if there is more to do.
  train_well(saving({"max_steps=9"}));
  EXPECT_EQ(losses(out()).size(), 9U);
  expect_error(train({"overwrite_output_dir=false"}), 2, "E-CONFIG-OUTPUT-USED",
               {"already contains a result", "resume from its checkpoints"});
}

// `tessera convert` makes of a checkpoint the files that the run left, or would have left.
TEST_F(CheckpointTest, AnyCheckpointBecomesAModelFolder) {
  const auto expect_same = [&](const std::string& one, const std::string& other, const Words& files) {
    for (const std::string& file : files)
      EXPECT_TRUE(read_text(here / (one + "/" + file)) == read_text(here / (other + "/" + file))) << file;
  };
  const Words model_files = {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"};
  train_well({"max_steps=6", "save_steps=3", "--nproc", "2", "output_dir=wide"});
  run_well({"convert", "wide/checkpoint-6", "of_6"});
  expect_same("of_6", "wide", model_files);
  run_well({"convert", "wide/checkpoint-3", "of_3"});
  train_well({"max_steps=3", "--nproc", "2", "output_dir=short"});
  expect_same("of_3", "short", model_files);
  // The run has an axis that one process does not have, and saves no optimizer states.
  train_well({"max_steps=2", "save_steps=2", "save_only_model=true", "tensor_parallel_size=2", "bf16=true",
              "--nproc", "2", "output_dir=cut"});
  run_well({"convert", "cut/checkpoint-2", "of_cut"});
  expect_same("of_cut", "cut", model_files);
  // The run spread experts over its ranks.
  write_tiny_model(here / "sparse", {.family = "mixtral"});
  train_well({"max_steps=2", "save_steps=2", "base_model=sparse", "expert_parallel_size=2", "--nproc", "2",
              "output_dir=spread"});
  run_well({"convert", "spread/checkpoint-2", "of_spread"});
  expect_same("of_spread", "spread", {"model.safetensors", "config.json"});
  // The checkpoint is of an adapter, and its base model has been moved.
  train_well({"max_steps=2", "save_steps=2", "adapter=lora", "lora_target_linear=true", "--nproc", "2",
              "output_dir=lora"});
  run_well({"convert", "lora/checkpoint-2", "of_lora"});
  expect_same("of_lora", "lora", {"adapter_model.safetensors", "adapter_config.json", "tokenizer.json"});
  fs::rename(here / "model", here / "moved");
  expect_error(run({"convert", "lora/checkpoint-2", "again"}), 4, "E-MODEL-NO-FILE", {"model/config.json"});
  run_well({"convert", "--base", "moved", "lora/checkpoint-2", "again"});
  expect_same("again", "lora", {"adapter_model.safetensors"});
  // A conversion to another type gives the nearest value of every weight.
  run_well({"convert", "--base", "moved", "--dtype", "bf16", "wide/checkpoint-3", "in_bf16"});
  const auto narrow = io::SafetensorsFile::open(here / "in_bf16/model.safetensors");
  EXPECT_EQ(nlohmann::json::parse(read_text(here / "in_bf16/config.json")).at("dtype"), "bfloat16");
  for (const io::TensorInfo& tensor : narrow.tensors()) {
    ASSERT_EQ(tensor.dtype, DType::BF16) << tensor.name;
    const std::vector<float> wide = read_f32(here / "of_3/model.safetensors", tensor.name);
    std::vector<uint16_t> bits(wide.size());
    narrow.read(tensor, 0, tensor.num_bytes(), bits.data());
    for (size_t i = 0; i < wide.size(); ++i) {
      const float value = std::bit_cast<float>(static_cast<uint32_t>(bits[i]) << 16);
      ASSERT_LE(std::abs(value - wide[i]), std::abs(wide[i]) / 256) << tensor.name;
    }
  }
  run_well({"convert", "--base", "moved", "--dtype", "fp16", "lora/checkpoint-2", "in_fp16"});
  EXPECT_EQ(io::SafetensorsFile::open(here / "in_fp16/adapter_model.safetensors").tensors().front().dtype,
            DType::F16);
  expect_error(run({"convert", "--base", "moved", "lora/checkpoint-2", "again"}), 2, "E-CONFIG-OUTPUT-USED",
               {"--overwrite"});
  // One bit of a tile is flipped.
  const std::string file = here / "cut/checkpoint-2/rank-00001.safetensors";
  std::string bytes = read_text(file);
  bytes[bytes.size() - 9] = static_cast<char>(bytes[bytes.size() - 9] ^ 4);
  write_text(file, bytes);
  expect_error(run({"convert", "--base", "moved", "cut/checkpoint-2", "damaged"}), 5, "E-CKPT-DAMAGED",
               {"rank-00001.safetensors"});
  EXPECT_FALSE(fs::exists(here / "damaged"));
}

// The rows change between two starts.
TEST_F(CheckpointTest, OtherRowsAreRefusedUnlessAskedFor) {
  train_well(saving({"max_steps=6"}));
  write_text(here / "rows.jsonl", tiny_rows(23));
  expect_error(train(saving({"max_steps=8"})), 3, "E-DATA-CHANGED", {"checkpoint-6", "allow_data_change"});
  const ProgramResult result = train_well(saving({"max_steps=8", "allow_data_change=true"}));
  EXPECT_NE(result.err.find("with other training rows than its checkpoint"), std::string::npos)
      << result.told();
  EXPECT_EQ(losses(out()).size(), 8U);
}

// Somebody else fills the disk in the midst of a run.
TEST_F(CheckpointTest, ADiskThatFillsIsToldAtOnceAndLosesNothing) {
  const SmallDisk disk(here / "disk", "64m");
  if (!disk.is_mounted()) GTEST_SKIP() << skip::kPermission << ": mounts";
  const std::string filler = here / "disk/filler";
  const Words words = saving({"output_dir=disk/out", "max_steps=2000", "--nproc", "2"});
  const auto newest_there = [&] { return newest("disk/out"); };
  RunOptions options;
  bool is_full = false;
  options.while_running = [&](pid_t) {
    if (is_full || newest_there() < 6) return;
    write_text(filler, std::string(size_t{64} << 20, 'x'));
    is_full = true;
  };
  const ProgramResult full = train(words, options);
  ASSERT_TRUE(is_full) << full.told();
  EXPECT_EQ(full.exit_code, 6) << full.told();
  EXPECT_NE(full.err.find("error[E-STORAGE-"), std::string::npos) << full.told();
  const int64_t saved = newest_there();
  EXPECT_GE(saved, 6);
  // A run with on_save_error: continue goes on instead, and saves again when there is room.
  fs::remove(filler);
  bool is_free = false;
  is_full = false;
  int64_t last = 0;
  options.while_running = [&](pid_t) {
    const int64_t step = newest_there();
    if (!is_full && step > saved) {
      write_text(filler, std::string(size_t{64} << 20, 'x'));
      is_full = true;
      last = step;
    } else if (is_full && !is_free && ++last > saved + 400) {
      fs::remove(filler);
      is_free = true;
    }
  };
  Words lenient = words;
  lenient.insert(lenient.begin(), "on_save_error=continue");
  const ProgramResult well = train(lenient, options);
  if (!is_free) fs::remove(filler);
  EXPECT_TRUE(is_full) << well.told();
  EXPECT_NE(well.err.find("after step " + std::to_string(saved)), std::string::npos) << well.told();
  EXPECT_NE(well.err.find("could not be saved; training continues"), std::string::npos) << well.told();
}

// The drive for optimizer states has no room for them.
TEST_F(CheckpointTest, AFullDriveForStatesEndsTheRunBeforeItsFirstStep) {
  const SmallDisk disk(here / "drive", "4m");
  if (!disk.is_mounted()) GTEST_SKIP() << skip::kPermission << ": mounts";
  const Words words =
      saving({"offload_optimizer_device=nvme", "offload_optimizer_nvme_path=drive/states", "max_steps=3"});
  fs::create_directory(here / "drive/states");
  write_text(here / "drive/filler", std::string(size_t{4} << 20, 'x'));
  expect_error(train(words), 6, "E-STORAGE-NO-SPACE", {"drive/states", "cannot reserve", " free, need "});
  EXPECT_EQ(newest(), 0);
  fs::remove(here / "drive/filler");
  train_well(words);
  EXPECT_TRUE(fs::is_empty(here / "drive/states"));
}

TEST_F(CheckpointTest, AKilledRunLeavesNothingOnTheDriveOfItsStates) {
  const Words words = saving({"offload_optimizer_device=nvme", "offload_optimizer_nvme_path=drive",
                              "max_steps=2000", "--nproc", "2"});
  RunOptions options;
  bool is_killed = false;
  options.while_running = [&](pid_t id) {
    if (is_killed || newest() < 6) return;
    for (const auto& [process, command] : processes_below(id)) kill(process, SIGKILL);
    kill(id, SIGKILL);
    is_killed = true;
  };
  const ProgramResult result = train(words, options);
  ASSERT_TRUE(is_killed) << result.told();
  EXPECT_TRUE(fs::is_empty(here / "drive"));
  const int64_t saved = newest();
  const ProgramResult again = train_well(with(words, {"max_steps=" + std::to_string(saved + 3)}));
  EXPECT_NE(again.err.find("after step " + std::to_string(saved)), std::string::npos) << again.told();
}

// The folder of the checkpoints disappears, or becomes something else.
TEST_F(CheckpointTest, AFolderThatIsTakenAwayIsMadeAgainOrTold) {
  const auto run_and = [&](const char* on_save_error, const std::function<void()>& what) {
    RunOptions options;
    bool is_done = false, is_asked = false;
    options.while_running = [&](pid_t id) {
      if (!is_done && newest() >= 6) {
        what();
        is_done = true;
      } else if (is_done && !is_asked && newest() > 0) {
        is_asked = true;
        kill(id, SIGTERM);
      }
    };
    fs::remove_all(out());
    const ProgramResult result = train(saving({"max_steps=1000000", on_save_error}), options);
    EXPECT_TRUE(is_done) << result.told();
    return result;
  };
  // A checkpoint that is being written meanwhile is lost.
  const ProgramResult moved =
      run_and("on_save_error=continue", [&] { fs::rename(out(), here / "elsewhere"); });
  EXPECT_EQ(moved.exit_code, 75) << moved.told();
  EXPECT_GT(newest(), newest("elsewhere")) << moved.told();
  EXPECT_GE(newest("elsewhere"), 6);
  const ProgramResult replaced = run_and("on_save_error=stop", [&] {
    fs::rename(out(), here / "elsewhere-too");
    write_text(out(), "a file");
  });
  EXPECT_EQ(replaced.exit_code, 6) << replaced.told();
  EXPECT_EQ(read_text(out()), "a file");
}

// Somebody takes the permission to write away, and gives it back.
TEST_F(CheckpointTest, AFolderThatCannotBeWrittenAnyMoreLosesNothing) {
  train_well({"max_steps=60", "output_dir=whole"});
  RunOptions options;
  options.prepare = [] {
    // These capabilities exempt root from permissions, so they are dropped.
    for (const int capability : {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH}) {
      if (getuid() == 0 && prctl(PR_CAPBSET_DROP, capability) != 0) _exit(kCannotPrepare);
    }
  };
  const auto may_write = [&](bool is_allowed) {
    fs::permissions(out(), is_allowed ? fs::perms::owner_all : fs::perms::owner_read | fs::perms::owner_exec);
  };
  bool is_taken = false;
  options.while_running = [&](pid_t) {
    if (is_taken || newest() < 6) return;
    may_write(false);
    is_taken = true;
  };
  const ProgramResult refused = train(saving({"max_steps=100000"}), options);
  if (refused.exit_code == kCannotPrepare) GTEST_SKIP() << skip::kPermission << ": capabilities";
  EXPECT_EQ(refused.exit_code, 6) << refused.told();
  EXPECT_NE(refused.err.find("error[E-STORAGE-PERMISSION]"), std::string::npos) << refused.told();
  EXPECT_GE(newest(), 6);
  may_write(true);

  bool is_given = false, is_stopped = false;
  int64_t before = 0;
  is_taken = false;
  options.while_running = nullptr;
  options.while_talking = [&](pid_t id, const std::string& err) {
    if (!is_taken && err.find("resuming from") != std::string::npos) {
      may_write(false);
      is_taken = true;
    } else if (is_taken && !is_given &&
               err.find("could not be saved; training continues") != std::string::npos) {
      before = newest();
      may_write(true);
      is_given = true;
    } else if (is_given && !is_stopped && newest() > before) {
      kill(id, SIGTERM);
      is_stopped = true;
    }
  };
  const ProgramResult lenient = train(saving({"max_steps=1000000", "on_save_error=continue"}), options);
  EXPECT_EQ(lenient.exit_code, 75) << lenient.told();
  EXPECT_TRUE(is_stopped) << lenient.told();
}

// A stop comes while a checkpoint is being written, beside the steps or between two of them.
TEST_F(CheckpointTest, AStopInTheMidstOfASaveLosesNothingOn2Ranks) {
  train_well({"max_steps=300", "--nproc", "2", "output_dir=whole"});
  Random random;
  for (const std::string& async : some_of<std::string>({"true", "false"}, 1, random)) {
    SCOPED_TRACE("async_save=" + async);
    fs::remove_all(out());
    const Words words = saving({"max_steps=300", "save_steps=1", "async_save=" + async, "--nproc", "2"});
    bool is_sent = false;
    RunOptions options;
    options.while_running = [&](pid_t root) {
      if (is_sent || newest() < 3) return;
      const auto ranks = ranks_below(root);
      if (ranks.size() != 2 || !hold(ranks[0])) return;
      // The rank is held stopped during a save, so the signal is the first thing that it meets when it goes
      // on.
      for (const auto& entry : fs::directory_iterator(out())) {
        if (io::is_partial_checkpoint(entry.path().filename())) is_sent = true;
      }
      if (is_sent) kill(ranks[0], SIGTERM);
      kill(ranks[0], SIGCONT);
    };
    const ProgramResult result = train(words, options);
    EXPECT_TRUE(is_sent);
    ASSERT_EQ(result.exit_code, 75) << result.told();
    const std::string step = std::to_string(newest());
    EXPECT_NE(result.err.find("stopped after step " + step + " by SIGTERM"), std::string::npos)
        << result.told();
    train_well(saving({"max_steps=300", "save_steps=1000", "--nproc", "2"}));
    EXPECT_TRUE(read_text(out("model.safetensors")) == read_text(here / "whole/model.safetensors"));
    EXPECT_EQ(losses(out()), losses(here / "whole"));
  }
}

// The file `latest` is for people: whatever it says, a run goes on from the newest whole checkpoint.
TEST_F(CheckpointTest, WhatLatestSaysDoesNotMatter) {
  train_well({"max_steps=9", "output_dir=whole"});
  train_well(saving({"max_steps=6"}));
  const Words texts = {"", "\xff\xfe nothing", "checkpoint-3\n", "checkpoint-99\n", "../out\n"};
  Random random;
  for (const std::string& text : some_of(texts, 1, random)) {
    SCOPED_TRACE(text);
    fs::remove_all(here / "next");
    fs::copy(out(), here / "next", fs::copy_options::recursive);
    write_text(here / "next/latest", text);
    const ProgramResult result = train_well(saving({"max_steps=9", "output_dir=next"}));
    EXPECT_NE(result.err.find("resuming from next/checkpoint-6, after step 6"), std::string::npos)
        << result.told();
    EXPECT_TRUE(read_text(here / "next/model.safetensors") == read_text(here / "whole/model.safetensors"));
    EXPECT_EQ(read_text(here / "next/latest"), "checkpoint-9\n");
  }
}

// Before its first step a run has read every file that it needs, or holds it open.
TEST_F(CheckpointTest, FilesThatAreCutOrRemovedInMidRunChangeNothing) {
  train_well({"max_steps=1000", "dataset_prepared_path=kept", "output_dir=whole"});
  bool is_gone = false;
  RunOptions options;
  options.while_running = [&](pid_t) {
    if (is_gone || num_steps() == 0) return;
    fs::remove_all(here / "prepared");
    fs::resize_file(here / "rows.jsonl", 10);
    fs::resize_file(model() + "/model.safetensors", 100);
    fs::remove(model() + "/config.json");
    is_gone = true;
  };
  const ProgramResult result = train({"max_steps=1000", "dataset_prepared_path=prepared"}, options);
  EXPECT_TRUE(is_gone);
  ASSERT_EQ(result.exit_code, 0) << result.told();
  EXPECT_TRUE(read_text(out("model.safetensors")) == read_text(here / "whole/model.safetensors"));
}

// Files of prepared rows are mapped: rows that are cut off are missing from the next step on.
TEST_F(CheckpointTest, PreparedRowsThatShrinkInMidRunEndTheJobWithTheirName) {
  for (const std::string ranks : {"1", "2"}) {
    SCOPED_TRACE(ranks + " ranks");
    fs::remove_all(here / "prepared");
    fs::remove_all(partial());
    bool is_cut = false;
    RunOptions options;
    options.while_running = [&](pid_t) {
      if (is_cut || num_steps() < 3) return;
      for (const auto& entry : fs::recursive_directory_iterator(here / "prepared")) {
        if (entry.is_regular_file()) fs::resize_file(entry.path(), 0);
      }
      is_cut = true;
    };
    const ProgramResult result =
        train({"max_steps=10000000", "dataset_prepared_path=prepared", "--nproc", ranks}, options);
    EXPECT_TRUE(is_cut);
    expect_error(result, 6, "E-STORAGE-MAPPED", {"prepared/", ": byte ", "cannot be read: the file shrank"});
  }
}

// The disk fails, or gives fewer bytes than it has, at any of the reads of a run that goes on.
TEST_F(CheckpointTest, AReadThatFailsIsToldOrAnOlderCheckpointIsTakenOn1And2Ranks) {
  if (kHasSanitizer) GTEST_SKIP() << skip::kSanitizer;
  Random random;
  for (const Words& launch : some_of<Words>({{}, {"--nproc", "2"}}, 1, random)) {
    const std::string ranks = launch.empty() ? "1" : "2", whole = "whole" + ranks, first = "first" + ranks;
    train_well(with({"max_steps=7", "output_dir=" + whole}, launch));
    train_well(with({"max_steps=6", "save_steps=3", "output_dir=" + first}, launch));
    const auto again = [&](const RunOptions& options) {
      fs::remove_all(out());
      fs::remove_all(partial());
      fs::create_directory(out());
      for (const char* name : {"checkpoint-3", "checkpoint-6"})
        fs::copy(here / (first + "/" + name), out(name), fs::copy_options::recursive);
      return train(with({"max_steps=7", "save_steps=3", "auto_resume_from_checkpoints=true",
                         "overwrite_output_dir=false"},
                        launch),
                   options);
    };
    int num_told = 0, num_older = 0;
    for (const std::string& rank : launch.empty() ? Words{"none"} : Words{"0", "1"}) {
      fs::remove(here / "count");
      const ProgramResult counted = again(with_read_fault(here.path(), rank, 0, "count"));
      ASSERT_EQ(counted.exit_code, 0) << counted.told();
      const int64_t count = std::stoll(read_text(here / "count"));
      ASSERT_GT(count, 20);
      std::vector<std::pair<std::string, int64_t>> faults = {{"end", 1}};  // read 1 is that of the recipe
      const Words others = {"EIO", "end", "EIO", "end", "EIO", "end", "short"};
      for (const std::string& fault : some_of(others, 1, random))
        faults.emplace_back(fault, random.in(1, count));
      if (const char* const every = std::getenv("TESSERA_TEST_EVERY_READ")) {
        faults.clear();
        for (int64_t i = 1; i <= count; ++i) faults.emplace_back(every, i);
      }
      for (const auto& [fault, number] : faults) {
        SCOPED_TRACE(ranks + " ranks, rank " + rank + ", read " + std::to_string(number) + " of " +
                     std::to_string(count) + ": " + fault);
        const ProgramResult result = again(with_read_fault(here.path(), rank, number, fault));
        EXPECT_FALSE(result.has_timed_out);
        if (result.exit_code == 0) {
          EXPECT_TRUE(read_text(out("model.safetensors")) == read_text(here / (whole + "/model.safetensors")))
              << result.told();
          num_older +=
              result.err.find("is incomplete or damaged and is skipped") != std::string::npos ? 1 : 0;
          continue;
        }
        ++num_told;
        EXPECT_NE(fault, "short") << "what comes in two pieces is whole: " << result.told();
        EXPECT_GE(result.exit_code, 2) << result.told();
        EXPECT_LE(result.exit_code, 6) << result.told();
        expect_error(result, result.exit_code, "E-", {});
        const Words errors = result.error_lines();
        const Words names = {"/", "rows.jsonl", "recipe.yaml: cannot read the file"};
        EXPECT_TRUE(std::any_of(
            names.begin(), names.end(),
            [&](const std::string& name) { return errors.at(0).find(name) != std::string::npos; }))
            << "no file is named: " << result.told();
        EXPECT_EQ(io::list_checkpoints(out()).size(), 2u);
      }
    }
    EXPECT_GT(num_told + num_older, 0);
  }
}

TEST_F(CheckpointTest, AnyNumberOfRanksGoesOn) {
  const Words wide = {"dtype=float64",
                      "max_steps=9",
                      "save_steps=3",
                      "micro_batch_size=1",
                      "output_dir=wide",
                      "--nproc",
                      "3"};
  train_well(wide);
  train_well(
      {"dtype=float64", "max_steps=9", "micro_batch_size=3", "resume_from_checkpoint=wide/checkpoint-6"});
  const auto want = losses(here / "wide"), got = losses(out());
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].first, want[i].first);
    EXPECT_NEAR(got[i].second, want[i].second, 1e-9) << "step " << i + 1;
  }
  expect_error(train({"resume_from_checkpoint=wide/checkpoint-5"}), 5, "E-CKPT-NO-MANIFEST",
               {"wide/checkpoint-5"});
}

}  // namespace
}  // namespace tessera::testing
