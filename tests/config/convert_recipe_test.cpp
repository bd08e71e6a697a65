#include "tessera/config/convert_recipe.h"

#include "tests/config/config_testing.h"
#include "tests/testing/temp_folder.h"

namespace tessera::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ConvertRecipeTest : public ::testing::Test {
 protected:
  // The recipe that the converted text is, and the text in text_. What it warns of is in told_.
  Recipe convert(const std::vector<std::string>& files, const std::string& arguments = "",
                 const std::vector<std::string>& more = {}) {
    ::testing::internal::CaptureStderr();
    text_ = convert_to_recipe(files, arguments);
    told_ = ::testing::internal::GetCapturedStderr();
    return parse_recipe(text_, "converted.yaml", more);
  }
  std::string refusal(const std::vector<std::string>& files, const std::string& arguments = "") {
    try {
      convert_to_recipe(files, arguments);
    } catch (const Error& error) {
      EXPECT_EQ(exit_code(error.kind()), 2);
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return "";
  }

  const testing::TempFolder here_;
  std::string text_, told_;
};

TEST_F(ConvertRecipeTest, OneRecipeOfLlamaFactoryAndDeepSpeed) {
  here_.write("zero3.json", R"({"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"},
                                "train_micro_batch_size_per_gpu": "auto"})");
  const std::string text =
      "model_name_or_path: meta-llama/Llama-3\nstage: sft\ndo_train: true\nfinetuning_type: lora\n"
      "lora_rank: 8\nlora_target: all\ntemplate: llama3\ndataset: chats,instructions\ndataset_dir: " +
      (here_ / "data") +
      "\ncutoff_len: 2048\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 8\n"
      "learning_rate: 1.0e-4\nnum_train_epochs: 3.0\nlr_scheduler_type: cosine\nwarmup_ratio: 0.1\n"
      "bf16: true\nddp_timeout: 180000000\nval_size: 0.1\neval_strategy: steps\neval_steps: 500\n"
      "resume_from_checkpoint: null\n";
  const std::string file = here_.write("sft.yaml", text);
  const Recipe recipe = convert({file, here_ / "zero3.json"});
  EXPECT_EQ(recipe.base_model, "meta-llama/Llama-3");
  EXPECT_EQ(recipe.adapter, AdapterKind::Lora);
  EXPECT_TRUE(recipe.lora_target_linear);
  EXPECT_EQ(recipe.lora_r, 8);
  EXPECT_EQ(recipe.sequence_len, 2048);
  EXPECT_EQ(recipe.micro_batch_size, 1);
  EXPECT_EQ(recipe.gradient_accumulation_steps, 8);
  EXPECT_EQ(recipe.num_epochs, 3.0);
  EXPECT_EQ(recipe.dtype, ComputeType::BFloat16);
  EXPECT_EQ(recipe.zero_stage, ZeroStage::Zero3);
  EXPECT_EQ(recipe.val_set_size, 0.1);
  ASSERT_EQ(recipe.datasets.size(), 2u);
  EXPECT_EQ(recipe.datasets[0].path, here_ / "data/dataset_info.json");
  EXPECT_EQ(recipe.datasets[0].type, "llama_factory");
  EXPECT_EQ(recipe.datasets[0].name, "chats");
  EXPECT_EQ(recipe.datasets[1].name, "instructions");
  EXPECT_THAT(text_, AllOf(HasSubstr("# " + file + ":5 (lora_rank)"), Not(HasSubstr("default"))));
  EXPECT_THAT(told_, HasSubstr("accepted without effect: template (line 7)"));
}

TEST_F(ConvertRecipeTest, TheArgumentsOfACommandLine) {
  const Recipe recipe = convert(
      {},
      "--model_name_or_path 'my model' --dataset_name trl-lib/Capybara --learning_rate 2.0e-4 "
      "--num_train_epochs=1 --packing --per_device_train_batch_size 2 --use_peft --lora_r 32 "
      "--lora_target_modules q_proj v_proj --max_steps -1 --eos_token '<|im_end|>'\\\n --report-to none");
  EXPECT_EQ(recipe.base_model, "my model");
  EXPECT_EQ(recipe.learning_rate, 2e-4);
  EXPECT_TRUE(recipe.sample_packing);
  EXPECT_EQ(recipe.adapter, AdapterKind::Lora);
  EXPECT_EQ(recipe.lora_target_modules, (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_EQ(recipe.max_steps, 0);
  EXPECT_EQ(recipe.special_tokens.at("eos_token"), "<|im_end|>");
  EXPECT_EQ(recipe.datasets.at(0).path, "trl-lib/Capybara");
  EXPECT_THAT(told_, HasSubstr("dataset 'trl-lib/Capybara'"));
  EXPECT_THAT(refusal({}, "--lr 1 2.0 x --lr 3"), HasSubstr("--lr is given twice"));
  EXPECT_THAT(refusal({}, "train.py --lr 1"), HasSubstr("'train.py' belongs to no argument"));
  EXPECT_THAT(refusal({}, "--a 'b"), HasSubstr("end inside quotes"));
  EXPECT_THAT(refusal({}, "--learning_rat 3"), HasSubstr("did you mean 'learning_rate'?"));
}

TEST_F(ConvertRecipeTest, AdaptersHaveTheTargetsThatTheToolWouldChoose) {
  const std::vector<std::string> rest = {"base_model=m", "datasets.0.path=d", "learning_rate=1"};
  EXPECT_EQ(convert({}, "--use_peft", rest).lora_target_modules,
            (std::vector<std::string>{"q_proj", "v_proj"}));
  EXPECT_THAT(told_, HasSubstr("q_proj and v_proj"));
  EXPECT_TRUE(convert({}, "--finetuning_type lora", rest).lora_target_linear);
  EXPECT_FALSE(convert({}, "--use_peft --lora_target_modules all-linear", rest).lora_target_modules.size() >
               0);
}

TEST_F(ConvertRecipeTest, AccelerateFilesLeaveTheRestToFillIn) {
  const std::string file = here_.write(
      "a.yaml",
      "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
      "  fsdp_reshard_after_forward: false\nmixed_precision: bf16\nnum_processes: 4\n");
  const Recipe recipe = convert({file}, "", {"base_model=m", "datasets.0.path=d", "learning_rate=1"});
  EXPECT_EQ(recipe.zero_stage, ZeroStage::Zero2);
  EXPECT_EQ(recipe.dtype, ComputeType::BFloat16);
  EXPECT_THAT(text_, AllOf(HasSubstr("# Required: base_model:"), HasSubstr("# Required: learning_rate:"),
                           HasSubstr("(fsdp_config.fsdp_reshard_after_forward)")));
}

TEST_F(ConvertRecipeTest, FilesMustAgree) {
  const std::string a = here_.write("a.yaml", "mixed_precision: bf16\n"),
                    b = here_.write("b.yaml", "num_train_epochs: 1\nfp16: true\n");
  EXPECT_THAT(refusal({a, b}), AllOf(HasSubstr("disagree"), HasSubstr("a.yaml:1")));
}

}  // namespace
}  // namespace tessera::config
