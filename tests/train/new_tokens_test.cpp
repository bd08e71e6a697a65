// Tests of recipes that add tokens to the vocabulary: the tables grow, and a result has them.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/config/load_recipe.h"
#include "tessera/core/log.h"
#include "tessera/generation/load_for_inference.h"
#include "tessera/models/common/base_model.h"
#include "tessera/peft/merge.h"
#include "tessera/train/run/trainer.h"
#include "tessera/train/setup/recipe_tokenizer.h"

#include "tests/testing/mpi_world.h"
#include "tests/train/training_testing.h"

namespace tessera::train {
namespace {

using testing::TinyTraining;

constexpr int64_t kOld = 259;       // tokens and rows of the models
constexpr int64_t kNew = kOld + 6;  // with those of the recipe

class NewTokens : public ::testing::Test {
 protected:
  void SetUp() override {
    if (here_.is_owner()) {
      for (const char* family : {"llama", "gpt2", "untied"}) {
        testing::TinyModel tiny;
        const bool is_untied = std::string(family) == "untied";
        tiny.family = is_untied ? "llama" : family;
        tiny.vocab = kOld;
        tiny.heads = 6;
        tiny.kv_heads = 3;
        testing::write_tiny_model(here_ / family, tiny);
        if (!is_untied) continue;
        auto config = testing::tiny_config(tiny);
        config["tie_word_embeddings"] = false;
        testing::write_text(here_ / "untied/config.json", config.dump());
        auto tensors = testing::tiny_tensors(tiny);
        tensors.push_back({"lm_head.weight", {tiny.vocab, tiny.hidden}, tensors.front().values});
        std::ranges::reverse(tensors.back().values);
        testing::write_tensors(here_ / "untied/model.safetensors", tensors);
      }
      testing::write_text(here_ / "rows.jsonl",
                          "{\"text\": \"one <tool> two\"}\n{\"text\": \"<tool><ctl>\"}\n");
    }
    world_->barrier();
  }

  config::Recipe recipe_of(const std::string& family, const std::string& more) const {
    return config::parse_recipe(
        "base_model: " + here_ / family + "\ndatasets:\n  - path: " + here_ / "rows.jsonl" +
            "\n    type: completion\nlearning_rate: 1e-2\nmax_steps: 2\noutput_dir: " + here_ / "out" +
            "\noverwrite_output_dir: true\nmicro_batch_size: 1\n"
            "tokens: [\"<tool>\", <a>, <b>, <c>, <d>]\n"
            "special_tokens:\n  additional_special_tokens: [\"<ctl>\"]\n" +
            more,
        here_ / "recipe.yaml");
  }

  std::shared_ptr<comm::Communicator> world_ = testing::world();
  testing::SharedFolder here_{world_};
};

TEST_F(NewTokens, EveryLayoutTrainsTheSameNewRows) {
  const int64_t ranks = world_->size();
  const std::vector<std::string> cases = {
      "", "mean_resizing_embeddings: true\nresize_token_embeddings_to_32x: true\n",
      "adapter: lora\nlora_target_linear: true\nlora_r: 2\nlora_modules_to_save: [embed_tokens, lm_head]\n",
      "adapter: lora\nlora_target_linear: true\nlora_r: 2\npeft_trainable_token_indices: [259, 260, 261, "
      "262, 263, 264]\n"};
  for (const std::string& more : cases) {
    SCOPED_TRACE(more);
    config::Recipe recipe = recipe_of(more.find("to_save") != std::string::npos ? "untied" : "llama", more);
    recipe.dtype = config::ComputeType::Float64;
    recipe.gradient_accumulation_steps = ranks;
    TinyTraining alone(recipe, comm::Communicator::single());
    const std::vector<double> want = alone.run_to(2);
    const int64_t rows = more.find("32x") != std::string::npos ? 288 : kNew;
    EXPECT_EQ(open_recipe_base(recipe).config().vocab_size, rows);
    config::Recipe sharded = recipe;
    sharded.gradient_accumulation_steps = 1;
    config::Recipe cut = recipe;
    cut.tensor_parallel_size = ranks;
    for (const config::Recipe& layout : {sharded, cut}) {
      if (layout.tensor_parallel_size > 1 && !recipe.peft_trainable_token_indices.empty()) continue;
      const std::vector<double> got = TinyTraining(layout, world_).run_to(2);
      for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-10 * want[i]) << i;
    }
  }
}

// Expects a result whose tokenizer, tables and config.json agree.
void expect_result(const std::string& folder, int64_t rows) {
  const models::BaseModel model = models::BaseModel::open(folder);
  EXPECT_EQ(model.config().vocab_size, rows);
  const text::Tokenizer tokenizer = models::BaseModel::tokenizer(folder);
  EXPECT_EQ(tokenizer.vocab_size(), kNew);
  EXPECT_EQ(tokenizer.encode("<ctl><tool>"), (std::vector<int32_t>{kOld, kOld + 1}));
  EXPECT_TRUE(tokenizer.is_special(kOld));
  EXPECT_FALSE(tokenizer.is_special(kOld + 1));
}

TEST_F(NewTokens, AFullResultHasTheNewVocabulary) {
  for (const char* family : {"llama", "gpt2"}) {
    train(recipe_of(family, "resize_token_embeddings_to_32x: true\n"), world_);
    if (here_.is_owner()) expect_result(here_ / "out", 288);
    world_->barrier();
    // The result trains again as it is, and loses the rows that no token has.
    config::Recipe again = recipe_of(family, "shrink_embeddings: true\n");
    again.base_model = here_ / "out";
    again.output_dir = here_ / "again";
    again.tokens.clear();
    train(again, world_);
    if (here_.is_owner()) expect_result(here_ / "again", kNew);
    world_->barrier();
  }
}

at::Tensor logits_of(const std::string& model, const std::string& adapter) {
  const parallel::DeviceMesh mesh(comm::Communicator::single(), ParallelDims{});
  const auto loaded = generation::load_for_inference(model, adapter, at::TensorOptions(at::kDouble), mesh);
  nn::KvCache cache(loaded->cache_options());
  return loaded->next_logits(cache,
                             {{.sequence = cache.add(), .ids = {70, kOld, kOld + 1, 80}, .num_logits = 4}});
}

TEST_F(NewTokens, AnAdapterBringsTheTablesAndMergesWithThem) {
  const std::vector<std::string> cases = {
      "lora_modules_to_save: [embed_tokens, lm_head]\n",
      "peft_trainable_token_indices: [259, 260, 261, 262, 263, 264]\n",
      "mean_resizing_embeddings: true\n",  // frozen tables, as PEFT saves them
  };
  for (const std::string& more : cases) {
    SCOPED_TRACE(more);
    const std::string base = more.find("to_save") != std::string::npos ? "untied" : "llama";
    train(recipe_of(base, "adapter: lora\nlora_target_linear: true\nlora_r: 2\n" + more), world_);
    if (here_.is_owner()) {
      peft::merge_adapter(models::folder_tensors(here_ / base), here_ / "out", here_ / "merged", true);
      expect_result(here_ / "merged", kNew);
      const at::Tensor merged = logits_of(here_ / "merged", ""), own = logits_of(here_ / base, here_ / "out");
      EXPECT_EQ(own.size(1), kNew);
      EXPECT_TRUE(at::allclose(merged, own, 1e-4, 1e-5)) << (merged - own).abs().max();
    }
    world_->barrier();
    // A training goes on from the adapter, whose vocabulary is the larger one.
    config::Recipe next = recipe_of(base, "adapter: lora\nlora_model_dir: " + here_ / "out" + "\n");
    next.dtype = config::ComputeType::Float64;
    EXPECT_EQ(open_recipe_base(next).config().vocab_size, kNew);
    TinyTraining(next, world_).run_to(1);
  }
}

}  // namespace
}  // namespace tessera::train
