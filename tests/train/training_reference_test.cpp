// Compares whole runs with the curves of Transformers and PEFT: data, model, adapter, loss, clipping,
// optimizer, schedule and saved folder at once.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tessera/peft/adapter_files.h"
#include "tessera/train/run/trainer.h"

#include "tests/io/expect_error.h"
#include "tests/models/reference_models.h"
#include "tests/testing/mpi_world.h"
#include "tests/train/reference_curve.h"

namespace tessera::train {
namespace {

std::string lora_text(const nlohmann::json& options) {
  return "adapter: lora\nlora_model_dir: " + reference_data("training/lora_initial") +
         "\nlora_r: " + options.at("lora_r").dump() + "\nlora_alpha: " + options.at("lora_alpha").dump() +
         "\nlora_target_linear: true\n";
}

class TrainingReferenceTest : public ::testing::Test {
 protected:
  std::shared_ptr<comm::Communicator> world_ = testing::world();
  testing::SharedFolder folder_{world_};
  std::string output_ = folder_ / "out";

  void train_recipe(const std::string& text) { train(testing::recipe_of(folder_, text, world_), world_); }
};

at::Tensor logits_of(models::CausalLM& model, const at::Tensor& ids) {
  const at::NoGradGuard no_grad;
  model.eval();
  return model.logits(models::pack_ids(ids));
}

TEST_F(TrainingReferenceTest, FullFinetuneFollowsTransformers) {
  const Curve curve = read_curve("training/full");
  train_recipe(recipe_text(curve.options, "float32", world_->size(), output_));
  if (world_->rank() != 0) return;
  expect_curve(output_ + "/metrics.jsonl", curve, "", {1e-5, 1e-4});

  const models::TensorFile want(reference_data("training/full_final.safetensors"));
  const auto model = models::build_model(output_, at::kFloat);
  models::load_weights(*model, io::ModelFiles::open(output_));
  for (const auto& entry : model->named_parameters()) {
    EXPECT_LE(models::max_difference(entry.value(), want.get("weight." + entry.key())), 2e-4) << entry.key();
  }
  EXPECT_LE(models::max_difference(logits_of(*model, want.get("ids")), want.get("logits")), 2e-3);
  EXPECT_FALSE(std::filesystem::exists(output_ + "/tokenizer.json")) << "the base has none";
}

TEST_F(TrainingReferenceTest, FullFinetuneInFloat64FollowsFloat64) {
  const Curve curve = read_curve("training/full");
  train_recipe(recipe_text(curve.options, "float64", world_->size(), output_));
  if (world_->rank() == 0) expect_curve(output_ + "/metrics.jsonl", curve, "_f64", {1e-12, 1e-11});
}

TEST_F(TrainingReferenceTest, LoraFollowsPeft) {
  const Curve curve = read_curve("training/lora");
  train_recipe(recipe_text(curve.options, "float32", world_->size(), output_) + lora_text(curve.options));
  if (world_->rank() != 0) return;
  expect_curve(output_ + "/metrics.jsonl", curve, "", {1e-5, 1e-4});

  const auto got = peft::open_adapter(output_),
             want = peft::open_adapter(reference_data("training/lora_final"));
  ASSERT_EQ(got.tensors().size(), want.tensors().size());
  const models::TensorFile got_file(output_ + "/adapter_model.safetensors");
  const models::TensorFile want_file(reference_data("training/lora_final/adapter_model.safetensors"));
  for (const io::TensorInfo* tensor : want.tensors()) {
    EXPECT_LE(models::max_difference(got_file.get(tensor->name), want_file.get(tensor->name)), 5e-4)
        << tensor->name;
  }
  const auto model = models::load_reference_model("llama3", at::kFloat);
  peft::load_adapter(*model, output_);
  const models::TensorFile logits(reference_data("training/lora_logits.safetensors"));
  EXPECT_LE(models::max_difference(logits_of(*model, logits.get("ids")), logits.get("logits_final")), 2e-3);
}

TEST_F(TrainingReferenceTest, LoraInFloat64FollowsFloat64) {
  const Curve curve = read_curve("training/lora");
  train_recipe(recipe_text(curve.options, "float64", world_->size(), output_) + lora_text(curve.options));
  if (world_->rank() == 0) expect_curve(output_ + "/metrics.jsonl", curve, "_f64", {1e-12, 1e-11});
}

// A base that bitsandbytes quantises on the processor. Its rows have 24 and 28 elements, so that groups of 64
// straddle them. Nested scales are coded by another rounding there (a table of 65,536 entries), which moves a
// few codes by one.
TEST_F(TrainingReferenceTest, QuantisedBasesFollowPeftAndBitsandbytes) {
  struct Case {
    const char *name, *keys;
    Tolerance tolerance;
  };
  for (const auto& [name, keys, tolerance] :
       {Case{"qlora", "load_in_4bit: true\nbnb_4bit_use_double_quant: false\n", {2e-5, 3e-4}},
        Case{"qlora_nested", "load_in_4bit: true\n", {1e-3, 1e-2}},
        Case{"qlora_fp4",
             "load_in_4bit: true\nbnb_4bit_quant_type: fp4\nbnb_4bit_use_double_quant: false\n",
             {2e-5, 3e-4}},
        Case{"lora_int8", "load_in_8bit: true\n", {2e-5, 3e-4}}}) {
    SCOPED_TRACE(name);
    const Curve curve = read_curve(std::string("training/") + name);
    const std::string output = output_ + name;
    train_recipe(recipe_text(curve.options, "float32", world_->size(), output) + lora_text(curve.options) +
                 keys);
    if (world_->rank() == 0) expect_curve(output + "/metrics.jsonl", curve, "", tolerance);
  }
}

// The learning rate changes nothing, so the loss is that of the base model, which Transformers has evaluated
// too: its first training loss.
TEST_F(TrainingReferenceTest, EvalLossIsTheMeanOverAllLabelTokens) {
  const Curve curve = read_curve("training/full");
  const std::string rows = folder_ / "rows.jsonl";
  if (folder_.is_owner()) {
    std::ifstream all(reference_data("training/rows.jsonl"));
    std::string text, line;
    for (int i = 0; i < 4 && std::getline(all, line); ++i) text += line + "\n";
    io::write_file_atomic(rows, text);
  }
  train_recipe(
      "base_model: " + reference_data("models/qwen2") + "\ndatasets:\n  - path: " + rows +
      "\ntest_datasets:\n  - path: " + rows +
      "\nsequence_len: 64\ndtype: float64\nlearning_rate: 1.0e-14\nlr_scheduler: constant\nmax_steps: 4\n"
      "eval_steps: 2\nmicro_batch_size: 3\nsave_final: false\noutput_dir: " +
      output_ + "\n");
  if (world_->rank() != 0) return;
  const auto evals = testing::metrics_with(output_ + "/metrics.jsonl", "eval_loss");
  ASSERT_EQ(evals.size(), 2U);
  for (size_t i = 0; i < evals.size(); ++i) {
    EXPECT_EQ(evals[i].at("step").get<size_t>(), 2 * (i + 1));
    EXPECT_NEAR(evals[i].at("eval_loss").get<double>(), curve.steps[0].at("loss_f64").get<double>(), 1e-9);
  }
  EXPECT_FALSE(std::filesystem::exists(output_ + "/model.safetensors"));
}

TEST_F(TrainingReferenceTest, TextNeedsATokenizer) {
  const std::string rows = folder_ / "rows.jsonl";
  if (folder_.is_owner()) io::write_file_atomic(rows, "{\"text\": \"some words\"}\n");
  const std::string text = "base_model: " + reference_data("models/qwen2") +
                           "\ndatasets:\n  - path: " + rows +
                           "\n    type: completion\nlearning_rate: 1.0e-3\noutput_dir: " + output_ + "\n";
  testing::expect_error(ErrorKind::Model, {"tokenizer.json"}, [&] { train_recipe(text); });
}

}  // namespace
}  // namespace tessera::train
