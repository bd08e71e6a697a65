#include "tessera/config/json_schema.h"

#include <regex>

#include <nlohmann/json.hpp>

#include "tessera/config/key_help.h"
#include "tessera/config/schema.h"

#include "tests/config/config_testing.h"

namespace tessera::config {
namespace {

TEST(JsonSchemaTest, HoldsEveryKeyWithItsHelpAndItsValues) {
  const auto schema = nlohmann::json::parse(json_schema());
  const auto& keys = schema.at("properties");
  for (const auto& key : recipe_keys()) ASSERT_TRUE(keys.contains(key.name)) << key.name;
  const auto& entry = keys.at("datasets").at("items").at("properties");
  for (const auto& key : dataset_keys()) ASSERT_TRUE(entry.contains(key.name)) << key.name;
  EXPECT_EQ(keys.at("learning_rate").at("description"), "peak learning rate");
  EXPECT_EQ(keys.at("learning_rate").at("minimum"), 0.0);
  EXPECT_EQ(keys.at("lora_dropout").at("exclusiveMaximum"), 1.0);
  EXPECT_EQ(entry.at("split").at("type").at(0), "string");
  const auto& names = keys.at("lr_scheduler").at("enum");
  EXPECT_NE(std::find(names.begin(), names.end(), "rex"), names.end());
  EXPECT_EQ(std::find(names.begin(), names.end(), "greedy"), names.end());
  const auto& stages = keys.at("zero_stage").at("enum");
  EXPECT_NE(std::find(stages.begin(), stages.end(), 3), stages.end()) << "also as a number";
  EXPECT_EQ(keys.at("gradient_clipping").at("description"), "means max_grad_norm");
  EXPECT_TRUE(keys.at("qat").at("deprecated"));
  EXPECT_TRUE(schema.at("patternProperties").contains("^wandb_"));
  EXPECT_FALSE(schema.at("additionalProperties"));
  EXPECT_EQ(schema.at("required"), (nlohmann::json{"base_model", "learning_rate"}));
  EXPECT_EQ(schema.at("anyOf"),
            nlohmann::json::parse(R"([{"required": ["datasets"]}, {"required": ["pretraining_dataset"]}])"));
  const std::regex number(keys.at("learning_rate").at("pattern").get<std::string>());
  for (const char* text : {"2e-5", "1_000", ".5", "1.5e+3", "-1"})
    EXPECT_TRUE(std::regex_match(text, number)) << text;
  for (const char* text : {"many", "0x10", "1e", "2 3"}) EXPECT_FALSE(std::regex_match(text, number)) << text;
}

TEST(KeyHelpTest, IsThatOfTheDocs) {
  // A few keys, whose names explain them, may have no help text.
  int64_t without = 0;
  for (const auto& key : recipe_keys()) without += key_help(key.name).empty() ? 1 : 0;
  EXPECT_LT(without, 10);
  EXPECT_EQ(key_help("learning_rate"), "peak learning rate");
  EXPECT_NE(key_help("path", true), "");
  EXPECT_EQ(key_help("no_such_key"), "");
  for (const char mark : {'`', ']'}) EXPECT_EQ(key_help("lora_model_dir").find(mark), std::string::npos);
  size_t count = 0;
  for (const KeyGroup& group : key_groups()) {
    EXPECT_FALSE(group.title.empty());
    count += group.keys.size();
  }
  EXPECT_EQ(count, recipe_keys().size());
}

}  // namespace
}  // namespace tessera::config
