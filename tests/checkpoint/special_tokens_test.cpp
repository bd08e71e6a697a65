#include "tessera/checkpoint/special_tokens.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/train/setup/recipe_tokenizer.h"
#include "tessera/train/setup/result_plan.h"

#include "tests/testing/temp_folder.h"
#include "tests/testing/tiny_model.h"

namespace tessera::checkpoint {
namespace {

using nlohmann::json;

struct Case {
  const char *config, *generation;              // before
  const char *config_after, *generation_after;  // with end token 7 and padding token 9
};

// Ends join lists; a single one of config.json is replaced, that of generation_config.json stays beside it.
constexpr Case kCases[] = {
    {R"({})", "", R"({"pad_token_id": 9, "eos_token_id": 7})", ""},
    {R"({"eos_token_id": 2})", R"({"eos_token_id": 2})", R"({"eos_token_id": 7, "pad_token_id": 9})",
     R"({"eos_token_id": [7, 2], "pad_token_id": 9})"},
    {R"({"eos_token_id": [2, 3]})", R"({"eos_token_id": [2, 3], "pad_token_id": 0})",
     R"({"eos_token_id": [7, 2, 3], "pad_token_id": 9})",
     R"({"eos_token_id": [7, 2, 3], "pad_token_id": 9})"},
    {R"({"eos_token_id": null, "vocab_size": 10})", R"({"eos_token_id": -1})",
     R"({"eos_token_id": 7, "vocab_size": 10, "pad_token_id": 9})",
     R"({"eos_token_id": 7, "pad_token_id": 9})"},
    {R"({"vocab_size": 8})", R"({"temperature": 0.5})", R"({"vocab_size": 8, "eos_token_id": 7})",
     R"({"temperature": 0.5, "eos_token_id": 7})"},
};

TEST(SpecialTokens, TheModelsFilesNameThem) {
  for (const Case& each : kCases) {
    SCOPED_TRACE(each.config);
    const BaseFiles after = with_special_tokens({each.config, each.generation}, {.eos = 7, .pad = 9});
    EXPECT_EQ(json::parse(after.config), json::parse(each.config_after));
    const std::string generation = each.generation_after;
    if (generation.empty()) {
      EXPECT_EQ(after.generation, "");
    } else {
      EXPECT_EQ(json::parse(after.generation), json::parse(generation));
    }
  }
  // Files that say the same already keep every byte.
  const BaseFiles same = {"{ \"eos_token_id\":  [2, 7],\"pad_token_id\":9}",
                          "{\"eos_token_id\":7,  \"pad_token_id\":9}"};
  const BaseFiles kept = with_special_tokens(same, {.eos = 7, .pad = 9});
  EXPECT_EQ(kept.config, same.config);
  EXPECT_EQ(kept.generation, same.generation);
}

// A run's result learns the tokens that its recipe chose, and no others.
TEST(SpecialTokens, ThoseOfARecipeReachTheResult) {
  const testing::TempFolder folder;
  testing::write_tiny_model(folder / "model");
  testing::write_text(folder / "model/generation_config.json", "{\"eos_token_id\": 258}");
  const auto file_of = [&](const config::Recipe& recipe, const std::string& name) {
    config::Problems problems;
    const auto tokenizer = train::load_recipe_tokenizer(recipe, problems);
    problems.settle();
    const auto plan = train::result_folder({}, recipe, read_base_files(recipe.base_model), tokenizer);
    for (const auto& [file, text] : plan.files) {
      if (file == name) return json::parse(text);
    }
    return json();
  };
  config::Recipe recipe;
  recipe.base_model = folder / "model";
  EXPECT_FALSE(file_of(recipe, "config.json").contains("eos_token_id"));
  EXPECT_EQ(file_of(recipe, "generation_config.json").at("eos_token_id"), 258);
  recipe.special_tokens = {{"eos_token", "<|endoftext|>"}};
  EXPECT_EQ(file_of(recipe, "config.json").at("eos_token_id"), 256);
  EXPECT_FALSE(file_of(recipe, "config.json").contains("pad_token_id"));
  EXPECT_EQ(file_of(recipe, "generation_config.json").at("eos_token_id"), json({256, 258}));
  recipe.special_tokens.clear();
  recipe.tokenizer_config = folder / "model";
  EXPECT_EQ(file_of(recipe, "config.json").at("eos_token_id"), 258);
  EXPECT_EQ(file_of(recipe, "config.json").at("bos_token_id"), 257);
}

}  // namespace
}  // namespace tessera::checkpoint
