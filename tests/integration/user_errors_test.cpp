// Tests that a user sees one line and an exit code when something is wrong.
#include <limits>

#include "tessera/core/cuda_driver.h"

#include "tests/integration/fixture.h"
#include "tests/testing/skip.h"

namespace tessera::testing {
namespace {

class UserErrorsTest : public ProgramTest {
 protected:
  // Makes a copy of the model folder for the test to break; returns its path.
  std::string broken_model() const {
    std::filesystem::copy(model(), here / "broken", std::filesystem::copy_options::recursive);
    return here / "broken";
  }
  void truncate(const std::string& path, double share) const {
    std::filesystem::resize_file(
        path, static_cast<uintmax_t>(share * static_cast<double>(std::filesystem::file_size(path))));
  }
};

TEST_F(UserErrorsTest, CommandLine) {
  expect_error(run({}), 2, "E-CONFIG-USAGE", {"no subcommand", "--help"});
  expect_error(run({"trian", "recipe.yaml"}), 2, "E-CONFIG-USAGE",
               {"unknown subcommand 'trian'", "did you mean 'train'"});
  expect_error(run({"--versoin"}), 2, "E-CONFIG-USAGE", {"--versoin", "did you mean '--version'"});
  expect_error(run({"data", "shwo", "recipe.yaml"}), 2, "E-CONFIG-USAGE",
               {"unknown subcommand 'shwo'", "did you mean 'show'"});
  expect_error(run({"debug"}), 2, "E-CONFIG-USAGE", {"no subcommand", "tessera debug --help"});
  expect_error(run({"train"}), 2, "E-CONFIG-USAGE", {"recipe"});
  expect_error(run({"train", "recipe.yaml", "--nporc", "2"}), 2, "E-CONFIG-USAGE",
               {"--nporc", "did you mean '--nproc'"});
  expect_error(run({"train", "recipe.yaml", "--nproc", "0"}), 2, "E-CONFIG-USAGE", {"--nproc"});
  expect_error(run({"train", "recipe.yaml", "--nproc", "two"}), 2, "E-CONFIG-USAGE", {"--nproc", "two"});
  expect_error(run({"train", "recipe.yaml", "--nproc"}), 2, "E-CONFIG-USAGE", {"--nproc"});
  for (const Words& words : {Words{"--learning_rate", "1e-4"}, Words{"--learning-rate=1e-4"}}) {
    Words arguments = {"train", "recipe.yaml"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    expect_error(run(arguments), 2, "E-CONFIG-USAGE", {"without dashes: learning_rate=1e-4"});
  }
  expect_error(run({"help", "trian"}), 2, "E-CONFIG-USAGE",
               {"unknown subcommand 'trian'", "did you mean 'train'"});
  expect_error(run({"preprocess", "recipe.yaml"}), 2, "E-CONFIG-USAGE",
               {"'preprocess'", "tessera data prepare"});
  expect_error(run({"help", "merge-lora"}), 2, "E-CONFIG-USAGE", {"'merge-lora'", "tessera merge"});
  expect_error(run({"help", "data", "foo"}), 2, "E-CONFIG-USAGE",
               {"unknown subcommand 'foo'", "need prepare, show"});
}

TEST_F(UserErrorsTest, Recipe) {
  expect_error(run({"train", "missing.yaml"}), 2, "E-CONFIG-NOT-FOUND", {"missing.yaml"});
  expect_error(run({"train", "model"}), 2, "E-CONFIG", {"model"});
  const std::string good = read_text(here / "recipe.yaml");
  const auto with_line = [&](const std::string& line) {
    write_text(here / "wrong.yaml", good + line + "\n");
    return run({"train", "wrong.yaml"});
  };
  expect_error(with_line("sead: 3"), 2, "E-CONFIG-UNKNOWN-KEY",
               {"wrong.yaml:10:1", "'sead'", "did you mean 'seed'"});
  expect_error(with_line("seed: many"), 2, "E-CONFIG-TYPE",
               {"wrong.yaml:10:7", "seed", "many", "whole number"});
  expect_error(with_line("seed: 1\nseed: 2"), 2, "E-CONFIG", {"wrong.yaml:11:1", "seed"});
  expect_error(with_line("micro_batch_size: 0"), 2, "E-CONFIG", {"wrong.yaml", "micro_batch_size"});
  expect_error(with_line("seed: [1"), 2, "E-CONFIG", {"wrong.yaml"});
  expect_error(with_line(std::string("seed: \xff\xfe")), 2, "E-CONFIG", {"wrong.yaml"});
  expect_error(train({"datasets.0.typ=alpaca"}), 2, "E-CONFIG-UNKNOWN-KEY",
               {"datasets.0.typ", "did you mean 'type'"});
  expect_error(train({"seed"}), 2, "E-CONFIG", {"seed", "key=value"});
  expect_error(train({"learning_rate="}), 2, "E-CONFIG-MISSING", {"learning_rate"});
  expect_error(train({"base_model=nowhere"}), 2, "E-CONFIG-NOT-FOUND", {"base_model", "nowhere"});
  expect_error(train({"datasets.0.path=nowhere.jsonl"}), 2, "E-CONFIG-NOT-FOUND",
               {"datasets.0.path", "nowhere.jsonl"});
  expect_error(train({"dp_shard_size=3"}), 2, "E-CONFIG-PARALLELISM", {"3", "1 rank"});
  EXPECT_FALSE(std::filesystem::exists(out()));
}

// The device is refused before anything is read: the model's files are broken too.
TEST_F(UserErrorsTest, ADeviceThatIsNotThere) {
  if (!cuda::driver().gpus.empty()) GTEST_SKIP() << skip::kNoDriver;
  truncate(broken_model() + "/config.json", 0.5);
  const Words parts = {"'cuda'", "cannot be used; got ",
                       "need NVIDIA's driver, a device, and LibTorch's CUDA part"};
  expect_error(train({"base_model=broken", "device=cuda"}), 2, "E-CONFIG-DEVICE", parts);
  expect_error(train({"base_model=broken", "device=cuda", "--nproc", "2"}), 2, "E-CONFIG-DEVICE", parts);
  write_text(here / "wrong.yaml", read_text(here / "recipe.yaml") + "device: cuda\n");
  expect_error(run({"train", "wrong.yaml"}), 2, "E-CONFIG-DEVICE", {"wrong.yaml:10:1", "'cuda'"});
  expect_error(run({"generate", "--model", "broken", "--prompt", "x", "--device", "cuda"}), 2,
               "E-CONFIG-DEVICE", parts);
  expect_error(run({"chat", "--model", "broken", "--device", "cuda"}), 2, "E-CONFIG-DEVICE", parts);
  expect_error(run({"bench", "generate", "--model", "broken", "--device", "cuda"}), 2, "E-CONFIG-DEVICE",
               parts);
  expect_error(run({"bench", "train", "--model", "broken", "--device", "cuda"}), 2, "E-CONFIG-DEVICE", parts);
  expect_error(run({"generate", "--model", "broken", "--prompt", "x", "--device", "gpu"}), 2,
               "E-CONFIG-USAGE", {"--device"});
  EXPECT_FALSE(std::filesystem::exists(out()));
}

TEST_F(UserErrorsTest, ModelFiles) {
  const std::string broken = broken_model();
  const auto fails = [&](const std::string& code, const Words& parts) {
    expect_error(train({"base_model=broken"}), 4, code, parts);
  };
  const auto restore = [&](const std::string& file) {
    std::filesystem::copy_file(model() + "/" + file, broken + "/" + file,
                               std::filesystem::copy_options::overwrite_existing);
  };
  truncate(broken + "/config.json", 0.5);
  fails("E-MODEL-JSON", {"broken/config.json"});
  std::filesystem::remove(broken + "/config.json");
  fails("E-MODEL-NO-FILE", {"broken/config.json"});
  auto config = tiny_config({});
  config["model_type"] = "unheard_of";
  write_text(broken + "/config.json", config.dump());
  fails("E-MODEL-UNSUPPORTED", {"unheard_of"});
  config = tiny_config({});
  config["hidden_size"] = "wide";
  write_text(broken + "/config.json", config.dump());
  fails("E-MODEL", {"broken/config.json", "hidden_size", "wide"});
  config["hidden_size"] = 48;
  write_text(broken + "/config.json", config.dump());
  fails("E-MODEL-TENSORS", {"broken", "24"});
  restore("config.json");

  truncate(broken + "/tokenizer.json", 0.5);
  fails("E-MODEL-TOKENIZER-JSON", {"broken/tokenizer.json:1:"});
  std::filesystem::remove(broken + "/tokenizer.json");
  expect_error(train({"base_model=broken", "datasets.0.path=chats.jsonl", "datasets.0.type=chat_template"}),
               4, "E-MODEL-TOKENIZER-MISSING", {"broken/tokenizer.json"});
  expect_error(run({"generate", "--model", "broken", "Hi"}), 4, "E-MODEL-TOKENIZER-MISSING",
               {"broken/tokenizer.json"});
  restore("tokenizer.json");

  for (const double share : {0.0, 0.001, 0.5, 0.999}) {
    restore("model.safetensors");
    truncate(broken + "/model.safetensors", share);
    fails("E-MODEL-SAFETENSORS", {"broken/model.safetensors"});
  }
  auto tensors = tiny_tensors({});
  tensors.pop_back();
  const std::string lost = tiny_tensors({}).back().name;
  write_tensors(broken + "/model.safetensors", tensors);
  fails("E-MODEL-TENSORS", {lost});
  std::filesystem::remove(broken + "/model.safetensors");
  fails("E-MODEL", {"broken", "safetensors"});
  write_text(broken + "/pytorch_model.bin", "PK");
  fails("E-MODEL", {"pickle", "safetensors"});
}

TEST_F(UserErrorsTest, Data) {
  const auto with_rows = [&](const std::string& text) {
    write_text(here / "wrong.jsonl", text);
    return train({"datasets.0.path=wrong.jsonl"});
  };
  const std::string good = R"({"input_ids": [1, 2, 3], "attention_mask": [1, 1, 1], "labels": [-100, 2, 3]})"
                           "\n";
  expect_error(with_rows(good + "{\"input_ids\": [1, 2\n"), 3, "E-DATA-JSON", {"wrong.jsonl:2:"});
  expect_error(with_rows(good + good + "{\"text\": \"x\"}\n"), 3, "E-DATA-MISSING-FIELD",
               {"wrong.jsonl:3:", "input_ids"});
  expect_error(with_rows(good + R"({"input_ids": [1, 264], "attention_mask": [1, 1], "labels": [1, 2]})"), 3,
               "E-DATA", {"wrong.jsonl:2", "264"});
  expect_error(with_rows(good + R"({"input_ids": [1, 2], "attention_mask": [1, 1], "labels": [1]})"), 3,
               "E-DATA", {"wrong.jsonl:2"});
  expect_error(with_rows(""), 3, "E-DATA-NO-ROWS", {"wrong.jsonl"});
  expect_error(with_rows("{\"input_ids\": [1, 2], \"attention_mask\": [1, 1], \"labels\": [-100, -100]}\n"),
               3, "E-DATA-NO-ROWS", {"wrong.jsonl"});
  expect_error(with_rows(std::string("{\"input_ids\": \"\xff\"}\n")), 3, "E-DATA", {"wrong.jsonl:1"});
  write_text(here / "wrong.jsonl", R"({"messages": [{"role": "wizard", "content": "x"}]})"
                                   "\n");
  expect_error(train({"datasets.0.path=wrong.jsonl", "datasets.0.type=chat_template"}), 3, "E-DATA",
               {"wrong.jsonl:1"});
  // `data show` refuses the same rows alike.
  expect_error(
      run({"data", "show", "recipe.yaml", "datasets.0.path=wrong.jsonl", "datasets.0.type=chat_template"}), 3,
      "E-DATA", {"wrong.jsonl:1"});
}

TEST_F(UserErrorsTest, OutputFolderIsTriedBeforeTraining) {
  for (const std::string& folder :
       {std::string("rows.jsonl/under"), std::string("rows.jsonl"), std::string("/proc/none/out")}) {
    const ProgramResult result = train({"output_dir=" + folder});
    expect_error(result, 6, "E-STORAGE", {folder.substr(0, 6)});
    EXPECT_EQ(result.err.find("step "), std::string::npos) << result.told();
  }
}

TEST_F(UserErrorsTest, DebugAndGenerate) {
  const auto logits_of = [&](const std::string& ids, const std::string& file = "l.safetensors") {
    return run({"debug", "logits", "--model", "model", "--ids", ids, "--out", file});
  };
  expect_error(logits_of("1,264"), 3, "E-DATA-TOKEN-ID", {"264", "0 to 263"});
  expect_error(logits_of("1,-1"), 3, "E-DATA-TOKEN-ID", {"-1"});
  expect_error(logits_of("1,99999999999999999999"), 3, "E-DATA-TOKEN-ID", {"0 to 263"});
  expect_error(logits_of("1,x"), 2, "E-CONFIG-USAGE", {"--ids"});
  expect_error(logits_of("1,2", "nowhere/l.safetensors"), 6, "E-STORAGE", {"nowhere/l.safetensors"});
  expect_error(run({"debug", "logits", "--model", "nowhere", "--ids", "1", "--out", "l"}), 2,
               "E-CONFIG-USAGE", {"nowhere"});
  expect_error(run({"debug", "tokenize", "--model", "model", "--file", "nowhere"}), 6, "E-STORAGE-NOT-FOUND",
               {"nowhere"});

  const auto generate = [&](const Words& more) {
    Words arguments = {"generate", "--model", "model", "--max-new-tokens", "4"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  expect_error(generate({"Hi", "--temperature=-1"}), 2, "E-CONFIG-SAMPLING", {"temperature", "-1"});
  expect_error(generate({"Hi", "--temperature=nan"}), 2, "E-CONFIG", {"temperature"});
  expect_error(generate({"Hi", "--top-p=0"}), 2, "E-CONFIG-SAMPLING", {"top_p"});
  expect_error(generate({"Hi", "--top-p=1.5"}), 2, "E-CONFIG-SAMPLING", {"top_p"});
  expect_error(generate({"Hi", "--top-k=-3"}), 2, "E-CONFIG", {"top"});
  expect_error(generate({"Hi", "--max-new-tokens=0"}), 2, "E-CONFIG-USAGE", {"--max-new-tokens"});
  expect_error(generate({""}), 2, "E-CONFIG-PROMPT", {"no token"});
  expect_error(generate({"\xff"}), 2, "E-CONFIG-PROMPT", {"UTF-8"});
  expect_error(generate({"--chat", "Hi", "--chat-template", "nonsense"}), 2, "E-CONFIG", {"nonsense"});
  expect_error(generate({"Hi", "--seed", "-1"}), 2, "E-CONFIG-USAGE", {"--seed", "-1"});
  expect_error(generate({"Hi", "--stop", ""}), 2, "E-CONFIG-USAGE", {"--stop", "empty"});
  expect_error(generate({"Hi", "--system", "Be brief."}), 2, "E-CONFIG-USAGE", {"--system", "--chat"});
  expect_error(generate({"Hi", "--chat-template", "chatml"}), 2, "E-CONFIG-USAGE",
               {"--chat-template", "--chat"});
  expect_error(generate({"Hi", "--output", "rows.jsonl"}), 2, "E-CONFIG-OUTPUT-USED",
               {"rows.jsonl", "already"});
  expect_error(generate({"Hi", "--output", "model/config.json", "--overwrite"}), 2, "E-CONFIG-OUTPUT-INPUT",
               {"the model"});
  expect_error(run({"debug", "logits", "--model", "model", "--ids", "1", "--out", "model/model.safetensors"}),
               2, "E-CONFIG-OUTPUT-INPUT", {"--out", "the model"});
  expect_error(run({"bench", "train", "--model", "model", "--trace", "rows.jsonl"}), 2,
               "E-CONFIG-OUTPUT-USED", {"--trace", "--overwrite"});
  expect_error(run({"data", "show", "recipe.yaml", "--html", "rows.jsonl", "--overwrite"}), 2,
               "E-CONFIG-OUTPUT-INPUT", {"--html", "a dataset"});
  expect_error(run({"train", "recipe.yaml", "prometheus_file=recipe.yaml"}), 2, "E-CONFIG-OUTPUT-INPUT",
               {"prometheus_file", "the recipe"});
  expect_error(run({"train", "recipe.yaml", "prometheus_file=out/run.prom", "output_dir=out"}), 2,
               "E-CONFIG-OUTPUT-USED", {"output_dir"});
  expect_error(generate({"Hi", "--output", "/dev/full"}), 2, "E-CONFIG-OUTPUT-USED", {"not a regular file"});
}

TEST_F(UserErrorsTest, BenchConvertAndMerge) {
  expect_error(run({"bench", "train", "--model", "nowhere", "--json"}), 2, "E-CONFIG-USAGE", {"nowhere"});
  expect_error(run({"bench", "train", "--model", "model", "--adapter", "magic"}), 2, "E-CONFIG-USAGE",
               {"--adapter", "magic"});
  write_text(here / "blank.txt", "\n\n");
  expect_error(run({"bench", "tokenize", "--model", "model", "--file", "blank.txt"}), 3, "E-DATA-EMPTY",
               {"blank.txt"});
  std::filesystem::create_directory(here / "empty");
  expect_error(run({"bench", "tokenize", "--model", "empty", "--file", "blank.txt"}), 4, "E-MODEL",
               {"empty"});
  expect_error(run({"bench", "train", "--model", "empty"}), 4, "E-MODEL-NO-FILE", {"empty/config.json"});
  expect_error(run({"convert", "rows.jsonl", "converted"}), 4, "E-MODEL-GGUF-MAGIC", {"rows.jsonl"});
  expect_error(run({"convert", "nowhere.gguf", "converted"}), 2, "E-CONFIG-USAGE", {"nowhere.gguf"});
  EXPECT_FALSE(std::filesystem::exists(here / "converted"));
  expect_error(run({"merge", "model", "merged"}), 4, "E-MODEL-NO-FILE",
               {"model/adapter_config.json", "the folder of a model", "need an adapter's folder"});
  expect_error(run({"convert", "model", "converted"}), 2, "E-CONFIG-CONVERT-DTYPE", {"--dtype", "GGUF"});
  expect_error(run({"chat", "--model", "empty"}), 4, "E-MODEL-NO-FILE", {"empty/config.json"});
  expect_error(run({"generate", "--model", "empty", "Hi"}), 4, "E-MODEL-NO-FILE",
               {"empty/config.json", "need a model's folder"});
  expect_error(run({"generate", "--model", "model", "--adapter", "model", "Hi"}), 4, "E-MODEL-NO-FILE",
               {"model/adapter_config.json", "the folder of a model"});
  train_well({"adapter=lora", "lora_target_linear=true", "max_steps=1"});
  expect_error(run({"merge", "out", "merged", "--base", "empty"}), 4, "E-MODEL", {"empty"});
  expect_error(run({"generate", "--model", "model", "--adapter", "out:nan", "Hi"}), 2, "E-CONFIG-USAGE",
               {"bad weight behind the colon", "out:nan"});
  expect_error(run({"generate", "--model", "out", "--adapter", "out", "Hi"}), 4, "E-MODEL-NO-FILE",
               {"out/config.json", "the folder of an adapter"});
  expect_error(run({"merge", "out", "rows.jsonl/merged"}), 6, "E-STORAGE", {"rows.jsonl"});
  auto hub = nlohmann::json::parse(read_text(out("adapter_config.json")));
  hub["base_model_name_or_path"] = "org/name";
  write_text(out("adapter_config.json"), hub.dump());
  expect_error(run({"merge", "out", "merged"}), 4, "E-MODEL-ADAPTER-BASE", {"'org/name'", "--base"});
  TinyModel wide;
  wide.hidden = 48;
  write_tiny_model(here / "wide", wide);
  expect_error(run({"merge", "out", "merged", "--base", "wide"}), 4, "E-MODEL", {});
  EXPECT_FALSE(std::filesystem::exists(here / "merged/model.safetensors"));
}

TEST_F(UserErrorsTest, DivergenceStopsBeforeTheUpdate) {
  const ProgramResult result = train({"learning_rate=1e3", "weight_decay=1e3", "max_steps=50"});
  expect_error(result, 7, "E-NUMERICS", {"step", "rank 0"});
  EXPECT_FALSE(std::filesystem::exists(out("model.safetensors")));
  EXPECT_GE(read_metrics(partial()).size(), 1u);
}

TEST_F(UserErrorsTest, NanWeights) {
  auto tensors = tiny_tensors({});
  for (TinyTensor& tensor : tensors) {
    if (tensor.name == "model.layers.1.mlp.up_proj.weight")
      tensor.values[3] = std::numeric_limits<float>::quiet_NaN();
  }
  write_tensors(here / "model/model.safetensors", tensors);
  expect_error(train(), 7, "E-NUMERICS-LOSS", {"step 1", "rank 0"});
  EXPECT_FALSE(std::filesystem::exists(out("model.safetensors")));
  EXPECT_TRUE(read_metrics(partial()).empty());
  expect_error(run({"generate", "--model", "model", "--max-new-tokens", "3", "Hi"}), 7, "E-NUMERICS-LOGITS",
               {"finite"});
}

}  // namespace
}  // namespace tessera::testing
