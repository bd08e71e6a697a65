// Tests of the folder that a run leaves: no result is lost, and none is mixed with another.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <limits>
#include <sys/mount.h>

#include "tests/hub/fake_upload_hub.h"
#include "tests/integration/fixture.h"
#include "tests/testing/paths.h"
#include "tests/testing/skip.h"
#include "tests/testing/small_disk.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;
using Tree = std::map<std::string, std::string>;

Tree tree_of(const std::string& folder) {
  Tree tree;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) tree[fs::relative(entry.path(), folder)] = read_text(entry.path());
  }
  return tree;
}

class ResultTest : public ProgramTest {
 protected:
  const Words lora_ = {"adapter=lora", "lora_target_linear=true"};

  // Nothing that a run works with is left beside the results.
  void expect_clean() const {
    for (const std::string& name : here.entries())
      EXPECT_EQ(name.find("tessera-"), std::string::npos) << name;
  }
  bool has_steps() const { return num_steps() > 0; }
};

TEST_F(ResultTest, ARefusedRunTouchesNothing) {
  train_well();
  const Tree first = tree_of(out());
  expect_error(train({"overwrite_output_dir=false"}), 2, "E-CONFIG-OUTPUT-USED",
               {"out", "already contains a result", "overwrite_output_dir: true"});
  expect_error(train({"adapter=lora", "lora_target_modules=[nothing_of_it]"}), 2, "E-CONFIG-LORA", {});
  write_text(here / "bad.jsonl", "{\n");
  expect_error(train({"datasets.0.path=bad.jsonl"}), 3, "E-DATA", {"bad.jsonl"});
  expect_error(train({"overwrite_output_dir=false", "--nproc", "2"}), 2, "E-CONFIG-OUTPUT-USED", {"out"});
  EXPECT_EQ(tree_of(out()), first);
  expect_clean();
}

TEST_F(ResultTest, ARunThatDivergesTouchesNothing) {
  train_well();
  const Tree first = tree_of(out());
  const ProgramResult result = train({"learning_rate=1e3", "weight_decay=1e3", "max_steps=50"});
  expect_error(result, 7, "E-NUMERICS", {"step"});
  EXPECT_NE(result.err.find("the logs of this run stay in "), std::string::npos) << result.told();
  EXPECT_EQ(tree_of(out()), first);
  EXPECT_TRUE(fs::exists(partial("recipe.yaml")));
  train_well();
  expect_clean();
}

TEST_F(ResultTest, NothingOfAnOlderResultStays) {
  write_text(here / "model/generation_config.json", "{\"eos_token_id\": 257}");
  write_text(here / "model/chat_template.jinja", tiny_chat_template());
  train_well();
  EXPECT_TRUE(fs::exists(out("generation_config.json")));
  EXPECT_TRUE(fs::exists(out("chat_template.jinja")));
  fs::remove(here / "model/generation_config.json");
  fs::remove(here / "model/chat_template.jinja");
  train_well(lora_);
  for (const char* gone :
       {"model.safetensors", "config.json", "generation_config.json", "chat_template.jinja"})
    EXPECT_FALSE(fs::exists(out(gone))) << gone;
  EXPECT_EQ(std::distance(fs::directory_iterator(out("runs")), {}), 1) << "one curve";
  train_well();
  for (const char* gone : {"adapter_config.json", "adapter_model.safetensors"})
    EXPECT_FALSE(fs::exists(out(gone)));

  train_well(with(lora_, {"output_dir=adapter"}));
  expect_error(run({"merge", "adapter", "out"}), 2, "E-CONFIG-OUTPUT-USED", {"--overwrite"});
  run_well({"merge", "adapter", "out", "--overwrite"});
  EXPECT_FALSE(fs::exists(out("metrics.jsonl")));
  expect_clean();
}

TEST_F(ResultTest, PreparedRowsInsideTheResultAreRefusedBeforeData) {
  write_text(here / "broken.jsonl", "{\n");
  for (const char* prepared : {"out", "out/prepared", "./model/../out/a/b"}) {
    expect_error(train({"datasets.0.path=broken.jsonl", std::string("dataset_prepared_path=") + prepared}), 2,
                 "E-CONFIG-OUTPUT-INPUT", {"dataset_prepared_path", prepared});
    EXPECT_FALSE(fs::exists(out()));
  }
  expect_clean();
  train_well({"dataset_prepared_path=prepared"});
  EXPECT_FALSE(fs::is_empty(here / "prepared"));
}

TEST_F(ResultTest, WhatIsReadIsNeverReplaced) {
  const Tree base = tree_of(model());
  fs::create_directory_symlink("model", here / "link");
  for (const char* folder : {"model", "link", "model/../model/"}) {
    expect_error(train({std::string("output_dir=") + folder}), 2, "E-CONFIG-OUTPUT-INPUT", {"base model"});
  }
  expect_error(train({"output_dir=."}), 2, "E-CONFIG-OUTPUT-INPUT", {"contains"});
  fs::create_directory(here / "work");
  fs::copy(here / "rows.jsonl", here / "work/rows.jsonl");
  expect_error(train({"output_dir=work", "datasets.0.path=work/rows.jsonl"}), 2, "E-CONFIG-OUTPUT-INPUT",
               {"a dataset"});
  expect_error(train({"output_dir=work/out", "datasets.0.path=work"}), 2, "E-CONFIG-OUTPUT-INPUT",
               {"is inside"});
  EXPECT_EQ(fs::exists(here / "work/out"), false);
  fs::rename(here / "work/rows.jsonl", here / "work/recipe.yaml");
  fs::copy(here / "recipe.yaml", here / "work/recipe.yaml", fs::copy_options::overwrite_existing);
  expect_error(run({"train", "work/recipe.yaml", "output_dir=work"}), 2, "E-CONFIG-OUTPUT-INPUT",
               {"the recipe"});
  train_well(with(lora_, {"output_dir=adapter"}));
  expect_error(train(with(lora_, {"lora_model_dir=adapter", "output_dir=adapter"})), 2,
               "E-CONFIG-OUTPUT-INPUT", {"adapter"});
  expect_error(run({"merge", "adapter", "link", "--overwrite"}), 2, "E-CONFIG-OUTPUT-INPUT", {"base model"});
  expect_error(run({"merge", "adapter", "adapter", "--overwrite"}), 2, "E-CONFIG-OUTPUT-INPUT", {"adapter"});
  write_text(here / "notes/notes.txt", "");
  fs::create_directory(here / "notes");
  write_text(here / "notes/notes.txt", "mine");
  expect_error(train({"output_dir=notes"}), 2, "E-CONFIG-OUTPUT-FOREIGN", {"notes.txt"});
  EXPECT_EQ(tree_of(model()), base);
  expect_clean();
}

TEST_F(ResultTest, DevicesAndPipesAreNotReplaced) {
  expect_error(train({"output_dir=/dev/null"}), 6, "E-STORAGE-NOT-A-DIRECTORY", {"/dev/null"});
  expect_error(run({"debug", "logits", "--model", "model", "--ids", "1", "--out", "/dev/null"}), 2,
               "E-CONFIG-OUTPUT-USED", {"/dev/null", "a device"});
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(ResultTest, ASecondRunIntoTheFolderIsRefused) {
  train_well();
  const Tree first = tree_of(out());
  bool has_tried = false;
  RunOptions options;
  options.while_running = [&](pid_t id) {
    if (has_tried || !has_steps()) return;
    has_tried = true;
    expect_error(train(), 2, "E-CONFIG-OUTPUT-LOCKED", {"out", "process " + std::to_string(id)});
    kill(id, SIGKILL);
  };
  const ProgramResult result = train({"max_steps=10000000"}, options);
  EXPECT_EQ(result.signal, SIGKILL) << result.told();
  EXPECT_TRUE(has_tried);
  EXPECT_EQ(tree_of(out()), first);
  train_well();
  expect_clean();
}

TEST_F(ResultTest, InterruptedRunsSayWhatIsLeftOn1And3Ranks) {
  for (const char* ranks : {"1", "3"}) {
    for (const bool has_older : {false, true}) {
      fs::remove_all(out());
      fs::remove_all(partial());
      if (has_older) train_well();
      const Tree first = has_older ? tree_of(out()) : Tree();
      bool is_sent = false;
      RunOptions options;
      options.while_running = [&](pid_t id) {
        if (is_sent || !has_steps()) return;
        is_sent = true;
        kill(id, SIGINT);
      };
      const ProgramResult result = train({"max_steps=10000000", "--nproc", ranks}, options);
      EXPECT_TRUE(ranks[0] == '1' ? result.signal == SIGINT : result.exit_code == 130) << result.told();
      const Words told = ProgramResult::lines_with(result.err, "tessera: interrupted after step ");
      ASSERT_EQ(told.size(), 1u) << result.told();
      EXPECT_NE(told[0].find("; nothing is saved"), std::string::npos) << told[0];
      EXPECT_EQ(told[0].find("older result is untouched") != std::string::npos, has_older) << told[0];
      EXPECT_NE(told[0].find("logs stay in " + partial()), std::string::npos) << told[0];
      EXPECT_FALSE(fs::exists(here / "out.tessera-lock"));
      EXPECT_EQ(has_older ? tree_of(out()) : Tree(), first);
      EXPECT_TRUE(fs::exists(partial("metrics.jsonl")));
    }
  }
}

TEST_F(ResultTest, LogsThatWereRemovedAreWrittenAgain) {
  bool is_removed = false;
  RunOptions options;
  options.while_running = [&](pid_t) {
    if (is_removed || !has_steps()) return;
    is_removed = true;
    fs::remove_all(partial());
  };
  const ProgramResult result = train({"max_steps=1000"}, options);
  ASSERT_TRUE(is_removed);
  EXPECT_EQ(result.exit_code, 0) << result.told();
  EXPECT_EQ(ProgramResult::lines_with(result.err, "were removed from").size(), 1u) << result.told();
  EXPECT_EQ(read_metrics(out()).size(), 1000u);
  EXPECT_FALSE(read_text(out("recipe.yaml")).empty());
  EXPECT_EQ(std::distance(fs::directory_iterator(out("runs")), fs::directory_iterator()), 1);
  run_well({"train", "out/recipe.yaml", "output_dir=again", "max_steps=1"});
  expect_clean();
}

TEST_F(ResultTest, TheBasesFilesAreReadOnce) {
  const auto config = nlohmann::json::parse(read_text(model() + "/config.json"));
  const std::string tokenizer = read_text(model() + "/tokenizer.json");
  bool has_changed = false;
  RunOptions options;
  options.while_running = [&](pid_t) {
    if (has_changed || !has_steps()) return;
    has_changed = true;
    write_text(model() + "/config.json", "{\"model_type\": \"gpt2\"}");
    write_text(model() + "/tokenizer.json", "{}");
    write_text(model() + "/generation_config.json", "{\"eos_token_id\": 1}");
  };
  const ProgramResult result = train({"max_steps=1000"}, options);
  ASSERT_EQ(result.exit_code, 0) << result.told();
  ASSERT_TRUE(has_changed);
  auto saved = nlohmann::json::parse(read_text(out("config.json")));
  saved.erase("dtype");
  EXPECT_EQ(saved, config);
  EXPECT_EQ(read_text(out("tokenizer.json")), tokenizer);
  EXPECT_FALSE(fs::exists(out("generation_config.json")));
}

// The disk has room for the files that a run writes beside its weights and tokenizer, but not for these.
TEST_F(ResultTest, ADiskThatIsTooSmallIsFoundBeforeTheFirstStep) {
  const SmallDisk disk(here / "disk", "3m");
  if (!disk.is_mounted()) GTEST_SKIP() << skip::kPermission << ": mounts";
  const auto expect_no_space = [&](const ProgramResult& result) {
    expect_error(result, 6, "E-STORAGE-NO-SPACE", {"does not fit", "disk", "free"});
    EXPECT_EQ(result.err.find("step 1"), std::string::npos) << result.told();
    EXPECT_TRUE(fs::is_empty(here / "disk"));
  };
  TinyModel wide;
  wide.hidden = 128, wide.intermediate = 2048;
  write_tiny_model(here / "wide", wide);
  ASSERT_GT(fs::file_size(here / "wide/model.safetensors"), 3u << 20);
  expect_no_space(train({"base_model=wide", "output_dir=disk/out"}));
  train_well(with(lora_, {"output_dir=disk/out"}));
  fs::remove_all(here / "disk/out");

  const std::string tokenizer = read_text(model() + "/tokenizer.json");
  write_text(model() + "/tokenizer.json", tokenizer + std::string(size_t{4} << 20, ' '));
  expect_no_space(train({"output_dir=disk/out"}));
  expect_no_space(train(with(lora_, {"output_dir=disk/out"})));
  train_well(with(lora_, {"output_dir=adapter"}));
  expect_no_space(run({"merge", "adapter", "disk/out"}));
}

TEST_F(ResultTest, WhatIsClearedAwayTakesNoSpace) {
  const SmallDisk disk(here / "disk", "8m");
  if (!disk.is_mounted()) GTEST_SKIP() << skip::kPermission << ": mounts";
  const auto leave = [&] {
    fs::create_directories(here / "disk/out.tessera-partial");
    write_text(here / "disk/out.tessera-partial/model.safetensors", std::string(size_t{7} << 20, 'x'));
    fs::create_directories(here / "disk/out.tessera-old");
    write_text(here / "disk/out.tessera-old/model.safetensors", std::string(size_t{1} << 19, 'x'));
  };
  train_well({"output_dir=disk/out"});
  leave();
  train_well({"output_dir=disk/out"});
  train_well(with(lora_, {"output_dir=adapter"}));
  leave();
  run_well({"merge", "adapter", "disk/out", "--overwrite"});
  EXPECT_EQ(std::distance(fs::directory_iterator(here / "disk"), {}), 1);
}

TEST_F(ResultTest, AFullDiskAtTheSaveLeavesTheOlderResult) {
  const SmallDisk disk(here / "disk", "8m");
  if (!disk.is_mounted()) GTEST_SKIP() << skip::kPermission << ": mounts";
  train_well(with(lora_, {"output_dir=disk/out"}));
  const Tree first = tree_of(here / "disk/out");
  const std::string metrics = here / "disk/out.tessera-partial/metrics.jsonl";
  bool is_full = false;
  RunOptions options;
  options.while_running = [&](pid_t) {
    if (is_full || !fs::exists(metrics) || read_text(metrics).empty()) return;
    is_full = true;
    std::ofstream(here / "disk/filler") << std::string(size_t{16} << 20, 'x');
  };
  const ProgramResult result = train({"output_dir=disk/out", "max_steps=1500"}, options);
  ASSERT_TRUE(is_full);
  expect_error(result, 6, "E-STORAGE-NO-SPACE", {"disk"});
  EXPECT_EQ(tree_of(here / "disk/out"), first);
  // The file holds only whole lines, and fewer than there were steps.
  const size_t lines = read_metrics(here / "disk/out.tessera-partial").size();
  EXPECT_GE(lines, 1u);
  EXPECT_LT(lines, 1500u);
  EXPECT_NE(result.err.find("can no longer be written"), std::string::npos) << result.told();
  fs::remove(here / "disk/filler");
  train_well({"output_dir=disk/out"});
  EXPECT_FALSE(fs::exists(here / "disk/out/adapter_model.safetensors"));
}

TEST_F(ResultTest, AMergeThatIsNoModelIsRefused) {
  train_well(with(lora_, {"output_dir=adapter"}));
  const std::string file = here / "adapter/adapter_model.safetensors";
  const auto original = io::SafetensorsFile::open(file);
  std::vector<TinyTensor> tensors;
  for (const io::TensorInfo& tensor : original.tensors())
    tensors.push_back({tensor.name, tensor.shape, read_f32(file, tensor.name)});
  const auto merge_with = [&](float value, bool both) {
    auto changed = tensors;
    for (TinyTensor& tensor : changed) {
      if (both || tensor.name.find("1.mlp.up_proj.lora_B") != std::string::npos) tensor.values[1] = value;
    }
    write_tensors(file, changed);
    return run({"merge", "adapter", "merged"});
  };
  expect_error(merge_with(std::numeric_limits<float>::quiet_NaN(), false), 4, "E-MODEL-ADAPTER",
               {"1.mlp.up_proj.lora_B", "not finite"});
  expect_error(merge_with(std::numeric_limits<float>::infinity(), false), 4, "E-MODEL-ADAPTER",
               {"not finite"});
  expect_error(merge_with(1e30f, false), 7, "E-NUMERICS-MERGE", {"model.layers.1.mlp.up_proj.weight"});
  expect_error(merge_with(1e30f, true), 7, "E-NUMERICS-MERGE", {"model.layers."});
  EXPECT_FALSE(fs::exists(here / "merged"));
  expect_clean();
}

TEST_F(ResultTest, AnEvaluationThatIsNoNumberEndsTheRun) {
  // Token 200 has a broken embedding and occurs in the evaluation alone.
  auto tensors = tiny_tensors({});
  TinyTensor head = tensors[0];
  head.name = "lm_head.weight";
  for (int64_t i = 0; i < 24; ++i) tensors[0].values[static_cast<size_t>(200 * 24 + i)] = std::nanf("");
  ASSERT_EQ(tensors[0].name, "model.embed_tokens.weight");
  tensors.push_back(head);
  write_tensors(model() + "/model.safetensors", tensors);
  auto config = tiny_config({});
  config["tie_word_embeddings"] = false;
  write_text(model() + "/config.json", config.dump());
  write_text(here / "good.jsonl", "{\"input_ids\": [1, 2, 3], \"labels\": [1, 2, 3]}\n");
  write_text(here / "eval.jsonl", "{\"input_ids\": [1, 200, 3], \"labels\": [1, 200, 3]}\n");
  const ProgramResult result =
      train(with(lora_, {"datasets.0.path=good.jsonl", "test_datasets=[{path: eval.jsonl}]", "max_steps=1"}));
  expect_error(result, 7, "E-NUMERICS-EVAL-LOSS", {"step 1"});
  EXPECT_FALSE(fs::exists(out()));
  EXPECT_EQ(read_text(partial("metrics.jsonl")).find("null"), std::string::npos);
}

TEST_F(ResultTest, TheChatTemplateThatWasTrainedWithIsSaved) {
  const Words chats = {"datasets.0.path=chats.jsonl", "datasets.0.type=chat_template", "max_steps=1"};
  const auto saved = [&] {
    return nlohmann::json::parse(read_text(out("tokenizer_config.json"))).value("chat_template", "");
  };
  train_well(chats);
  EXPECT_EQ(saved(), tiny_chat_template());
  const std::string original = read_text(model() + "/tokenizer_config.json");
  EXPECT_EQ(read_text(out("tokenizer_config.json")), original) << "byte for byte";
  for (const char* name : {"alpaca", "llama3"}) {
    SCOPED_TRACE(name);
    train_well(with(chats, {std::string("chat_template=") + name}));
    EXPECT_NE(saved(), tiny_chat_template());
    const auto answer = [&](const Words& more) {
      return run_well(
                 with({"generate", "--model", "out", "--temperature", "0", "--max-new-tokens", "8", "--chat"},
                      with(more, {"Hi"})))
          .out;
    };
    EXPECT_EQ(answer({}), answer({"--chat-template", name}));
    // A dataset's own template has the same effect, and an adapter and its merge keep it.
    const std::string by_recipe = saved();
    train_well(with(chats, {std::string("datasets.0.chat_template=") + name}));
    EXPECT_EQ(saved(), by_recipe);
    write_text(model() + "/chat_template.jinja", tiny_chat_template());
    train_well(with(with(chats, lora_), {std::string("chat_template=") + name}));
    EXPECT_EQ(read_text(out("chat_template.jinja")), by_recipe);
    EXPECT_EQ(saved(), by_recipe);
    run_well({"merge", "out", "merged", "--overwrite"});
    EXPECT_EQ(read_text(here / "merged/chat_template.jinja"), by_recipe);
    fs::remove(model() + "/chat_template.jinja");
    run_well({"merge", "out", "merged", "--overwrite"});
    EXPECT_EQ(read_text(here / "merged/chat_template.jinja"), by_recipe);
  }
}

TEST_F(ResultTest, TokensBeyondTheEmbeddingAreFoundBeforeTheTraining) {
  TinyModel narrow;
  narrow.vocab = 257;  // the tokenizer has 259
  write_tiny_model(here / "narrow", narrow);
  write_text(here / "text.jsonl", "{\"text\": \"plain\"}\n{\"text\": \"marked <|im_end|>\"}\n");
  const Words words = {"base_model=narrow", "datasets.0.path=text.jsonl", "datasets.0.type=completion",
                       "special_tokens.eos_token=<|endoftext|>", "special_tokens.bos_token=<|endoftext|>"};
  write_text(here / "chat.jsonl", tiny_chats(1));
  const ProgramResult result =
      train(with(words, {"datasets.0.path=chat.jsonl", "datasets.0.type=chat_template"}));
  expect_error(result, 3, "E-DATA-TOKEN-ID", {"chat.jsonl:1", "257", "embedding"});
  EXPECT_EQ(result.err.find("step "), std::string::npos) << result.told();
  EXPECT_FALSE(fs::exists(out()));
}

TEST_F(ResultTest, RanksThatReadDifferentFilesAreRefused) {
  fs::create_directory(here / "other");
  for (const char* name : {"model", "recipe.yaml", "rows.jsonl"})
    fs::copy(here / name, here / (std::string("other/") + name), fs::copy_options::recursive);
  const auto two = [&] {
    const Words rank = {"-n", "1", program_path(), "train", "recipe.yaml"};
    return run_command(mpirun(with(with(with({"--quiet"}, rank), {":", "-wdir", here / "other"}), rank)),
                       {.timeout_s = 60.0, .folder = here.path()});
  };
  // Two rows change places: the numbers of rows, tokens and labels stay.
  Words lines = ProgramResult::lines(read_text(here / "rows.jsonl"));
  std::swap(lines[3], lines[7]);
  std::string swapped;
  for (const std::string& line : lines) swapped += line + "\n";
  write_text(here / "other/rows.jsonl", swapped);
  expect_error(two(), 3, "E-DATA-RANKS-DIFFER", {"rank 1", "24 rows", "from row "});
  write_text(here / "other/rows.jsonl", read_text(here / "rows.jsonl"));

  auto tensors = tiny_tensors({});
  tensors[3].values.back() += 1.0f;
  write_tensors(here / "other/model/model.safetensors", tensors);
  expect_error(two(), 4, "E-MODEL-RANKS-DIFFER", {"rank 1", "machines"});

  // The change lies far from either end of a large tensor.
  TinyModel wide;
  wide.layers = 1, wide.hidden = 256, wide.intermediate = 2560;
  for (const char* folder : {"model", "other/model"}) write_tiny_model(here / folder, wide);
  tensors = tiny_tensors(wide);
  const auto large = std::ranges::find_if(
      tensors, [](const TinyTensor& tensor) { return tensor.name.find("up_proj") != std::string::npos; });
  ASSERT_GT(large->values.size(), size_t{1} << 19);
  large->values[1 << 18] += 1.0f;
  write_tensors(here / "other/model/model.safetensors", tensors);
  expect_error(two(), 4, "E-MODEL-RANKS-DIFFER", {"rank 1", "machines"});
  EXPECT_FALSE(fs::exists(out()));
}

TEST_F(ResultTest, IsUploadedToTheHub) {
  FakeUploadHub hub;
  const Words arguments = {"hub_model_id=org/name", "max_steps=1"};
  RunOptions options;
  options.environment = {{"HF_ENDPOINT", hub.url()},
                         {"HF_TOKEN", "hf_other"},
                         {"HF_HOME", here.path()},
                         {"HF_HUB_OFFLINE", "0"},
                         {"NO_PROXY", "127.0.0.1"}};
  expect_error(train(arguments, options), 2, "E-CONFIG-HUB-ACCESS",
               {"key 'hub_model_id'", "does not accept the token"});
  EXPECT_FALSE(fs::exists(out()));

  options.environment["HF_TOKEN"] = FakeUploadHub::kToken;
  const ProgramResult uploaded = train(arguments, options);
  EXPECT_EQ(uploaded.exit_code, 0) << uploaded.told();
  ASSERT_EQ(hub.commits().size(), 1U) << uploaded.told();
  EXPECT_EQ(hub.commits()[0].at("model.safetensors"),
            "oid " + FakeUploadHub::sha256(read_text(out("model.safetensors"))));
  EXPECT_FALSE(hub.commits()[0].contains("recipe.yaml"));

  // An upload that fails costs neither the result nor the success of the run.
  hub.fail_next("commit", {[](FakeReply& reply) { reply = {400}; }});
  const ProgramResult failed =
      train(with(arguments, {"--nproc", "2", "adapter=lora", "lora_target_linear=true"}), options);
  EXPECT_EQ(failed.exit_code, 0) << failed.told();
  EXPECT_EQ(ProgramResult::lines_with(failed.err, "was not uploaded").size(), 1U) << failed.told();
  EXPECT_NE(failed.err.find("to upload it, run: tessera upload out org/name\n"), std::string::npos)
      << failed.told();
  const ProgramResult again = run({"upload", "out", "org/name"}, options);
  EXPECT_EQ(again.exit_code, 0) << again.told();
  EXPECT_EQ(hub.commits().back().at("adapter_model.safetensors"),
            "oid " + FakeUploadHub::sha256(read_text(out("adapter_model.safetensors"))));
  EXPECT_EQ(hub.stored().size(), 2U);
}

}  // namespace
}  // namespace tessera::testing
