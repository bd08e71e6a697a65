// Tests of input that is no file, never ends, or is longer than a model can take.
#include <sys/stat.h>

#include <unistd.h>

#include "tests/integration/fixture.h"

namespace tessera::testing {
namespace {

class HostileInputTest : public ProgramTest {
 protected:
  // Makes a copy of the model in which `file` is a pipe that nobody writes to; returns its folder.
  std::string model_with_pipe(const std::string& file) const {
    const std::string folder = here / "piped";
    std::filesystem::remove_all(folder);
    std::filesystem::copy(model(), folder);
    std::filesystem::remove(folder + "/" + file);
    EXPECT_EQ(::mkfifo((folder + "/" + file).c_str(), 0600), 0);
    return "piped";
  }
};

TEST_F(HostileInputTest, PipesAndDevicesAreRefusedWhereverAFileIsRead) {
  ASSERT_EQ(::mkfifo((here / "pipe.jsonl").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", here / "zero.jsonl");
  std::filesystem::create_directory(here / "folder.jsonl");
  for (const std::string name : {"pipe.jsonl", "zero.jsonl"}) {
    expect_error(train({"datasets.0.path=" + name}), 6, "E-STORAGE-NOT-A-FILE", {name});
    expect_error(run({"train", name}), 2, "E-CONFIG-NOT-A-FILE", {name});
    expect_error(train({"deepspeed=" + name}), 2, "E-CONFIG-NOT-A-FILE", {name});
    expect_error(train({"datasets.0.path=chats.jsonl", "datasets.0.type=chat_template", "chat_template=jinja",
                        "chat_template_jinja=" + name}),
                 6, "E-STORAGE-NOT-A-FILE", {name});
    expect_error(run({"debug", "tokenize", "--model", "model", "--file", name}), 6, "E-STORAGE-NOT-A-FILE",
                 {name});
    expect_error(run({"convert", name, "converted"}), 6, "E-STORAGE-NOT-A-FILE", {name});
  }
  expect_error(run({"generate", "--model", "model", "--prompts", "pipe.jsonl"}), 6, "E-STORAGE-NOT-A-FILE",
               {"pipe.jsonl"});
  for (const char* file : {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
                           "generation_config.json", "special_tokens_map.json", "chat_template.jinja"}) {
    expect_error(train({"base_model=" + model_with_pipe(file)}), 6, "E-STORAGE-NOT-A-FILE", {file});
  }
}

TEST_F(HostileInputTest, SparseFilesAreNotReadToTheirEnd) {
  write_text(here / "sparse.jsonl", tiny_rows(1));
  ASSERT_EQ(::truncate((here / "sparse.jsonl").c_str(), int64_t{1} << 40), 0);
  expect_error(train({"datasets.0.path=sparse.jsonl"}), 3, "E-DATA-LINE-TOO-LONG",
               {"sparse.jsonl:2", "64.0 MiB"});
  expect_error(train({"deepspeed=sparse.jsonl"}), 2, "E-CONFIG", {"sparse.jsonl"});
  expect_error(run({"train", "sparse.jsonl"}), 2, "E-CONFIG", {"sparse.jsonl"});
  for (const char* file : {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"}) {
    const std::string folder = here / "broken";
    std::filesystem::remove_all(folder);
    std::filesystem::copy(model(), folder);
    ASSERT_EQ(::truncate((folder + "/" + file).c_str(), int64_t{1} << 40), 0);
    const ProgramResult result = train({"base_model=broken"});
    EXPECT_NE(result.exit_code, 0);
    ASSERT_EQ(result.error_lines().size(), 1u) << result.told();
    EXPECT_NE(result.error_lines()[0].find(file), std::string::npos) << result.told();
  }
}

TEST_F(HostileInputTest, PromptsBeyondTheModelsPositionsAreRefused) {
  const auto generate = [&](size_t length, int new_tokens) {
    return run({"generate", "--model", "model", "--max-new-tokens", std::to_string(new_tokens),
                std::string(length, 'a')});
  };
  expect_error(generate(1000, 4), 4, "E-MODEL-LENGTH",
               {"config.json", "max_position_embeddings", "need at most 256"});
  // An answer ends at the last position of the model.
  EXPECT_EQ(generate(200, 1000).exit_code, 0);
}

TEST_F(HostileInputTest, RowsBeyondTheModelsPositionsAreTold) {
  std::string ids = "1", labels = "1", mask = "1";
  for (int i = 0; i < 299; ++i) ids += ",2", labels += ",2", mask += ",1";
  write_text(here / "long.jsonl", "{\"input_ids\": [" + ids + "], \"labels\": [" + labels +
                                      "], \"attention_mask\": [" + mask + "]}\n");
  const ProgramResult result =
      train_well({"datasets.0.path=long.jsonl", "sequence_len=512", "max_steps=1", "micro_batch_size=1"});
  EXPECT_NE(result.err.find("warning: 1 rows of up to 300 tokens are longer than the model's "
                            "max_position_embeddings (256)"),
            std::string::npos)
      << result.told();
  EXPECT_EQ(train_well({"max_steps=1", "output_dir=out2"}).err.find("max_position_embeddings"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::testing
