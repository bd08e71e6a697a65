// Runs a second family, GPT-2, through the whole program: `train`, `merge` and `generate`.
#include <cmath>
#include <set>

#include "tests/integration/fixture.h"

namespace tessera::testing {
namespace {

class Gpt2Test : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    std::filesystem::remove_all(model());
    write_tiny_model(model(), {.family = "gpt2"});
  }
};

TEST_F(Gpt2Test, AFullFinetuneKeepsTheFormOfItsFiles) {
  train_well({"micro_batch_size=24"});
  const auto losses = read_column(out(), "loss");
  for (size_t step = 1; step < losses.size(); ++step) EXPECT_LT(losses[step], losses[step - 1]);
  const auto before = io::SafetensorsFile::open(here / "model/model.safetensors");
  const auto after = io::SafetensorsFile::open(out("model.safetensors"));
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  for (const io::TensorInfo& tensor : before.tensors()) {
    ASSERT_NE(after.find(tensor.name), nullptr) << tensor.name;
    EXPECT_EQ(after.find(tensor.name)->shape, tensor.shape) << tensor.name;
    EXPECT_NE(read_f32(out("model.safetensors"), tensor.name),
              read_f32(here / "model/model.safetensors", tensor.name))
        << tensor.name;
  }
  // Training goes on from the written model; the loss would not fall if a matrix came back transposed.
  train_well({"base_model=out", "output_dir=more", "max_steps=1", "micro_batch_size=24"});
  EXPECT_LT(read_column(here / "more", "loss").at(0), losses.back());
  run_well({"generate", "--model", "out", "--max-new-tokens", "3", "Hi"});
}

TEST_F(Gpt2Test, AnyLayoutOn1To3RanksEqualsOneProcess) {
  const Words same = {"dtype=float64", "micro_batch_size=2", "max_steps=2"};
  const auto with = [&](const Words& more) {
    Words all = same;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  train_well(with({"output_dir=one", "gradient_accumulation_steps=6"}));
  train_well(with(
      {"output_dir=two", "gradient_accumulation_steps=3", "gradient_checkpointing=true", "--nproc", "2"}));
  train_well(with(
      {"output_dir=three", "gradient_accumulation_steps=2", "gradient_checkpointing=mlp", "--nproc", "3"}));
  const auto want = read_column(here / "one", "loss"), want_norm = read_column(here / "one", "grad_norm");
  for (const char* folder : {"two", "three"}) {
    const auto got = read_column(here / folder, "loss"), got_norm = read_column(here / folder, "grad_norm");
    ASSERT_EQ(got.size(), want.size());
    for (size_t step = 0; step < want.size(); ++step) {
      EXPECT_NEAR(got[step], want[step], 1e-10 * want[step]) << folder;
      EXPECT_NEAR(got_norm[step], want_norm[step], 1e-10 * want_norm[step]) << folder;
    }
  }
}

TEST_F(Gpt2Test, LoraMergesToTheSameLogits) {
  train_well({"adapter=lora", "lora_target_linear=true", "lora_r=3", "micro_batch_size=24"});
  const auto config = nlohmann::json::parse(read_text(out("adapter_config.json")));
  EXPECT_EQ(config.at("fan_in_fan_out"), true);
  const Words targets = config.at("target_modules").get<Words>();
  EXPECT_EQ(std::set<std::string>(targets.begin(), targets.end()),
            (std::set<std::string>{"c_attn", "c_fc", "c_proj"}));
  run_well({"merge", "out", "merged", "--base", "model"});
  const auto beside = logits(model(), out()), merged = logits(here / "merged"), plain = logits(model());
  double largest = 0, moved = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(beside[i]) - merged[i]));
    moved = std::max(moved, std::abs(static_cast<double>(beside[i]) - plain[i]));
  }
  EXPECT_LT(largest, 1e-4);
  EXPECT_GT(moved, 1e-2);
}

TEST_F(Gpt2Test, RandomInitNeedsNoWeights) {
  std::filesystem::remove(here / "model/model.safetensors");
  train_well({"random_init=true"});
  EXPECT_NEAR(read_column(out(), "loss").at(0), std::log(264.0), 0.5);
}

}  // namespace
}  // namespace tessera::testing
