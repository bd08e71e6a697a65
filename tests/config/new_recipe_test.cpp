#include "tessera/config/new_recipe.h"

#include "tests/config/config_testing.h"
#include "tests/testing/temp_folder.h"

namespace tessera::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kAssignments = {"base_model=my/model",    "datasets.0.path=rows.jsonl",
                                               "datasets.0.type=alpaca", "learning_rate=2e-4",
                                               "adapter=lora",           "lora_target_linear=true"};

TEST(NewRecipeTest, IsARecipeWithWhatItWasGiven) {
  for (const bool with_all_keys : {false, true}) {
    const std::string text = new_recipe(kAssignments, with_all_keys);
    const Recipe recipe = parse_recipe(text, "new.yaml");
    EXPECT_EQ(dump_recipe(recipe), dump_recipe(parse_recipe("", "r.yaml", kAssignments)));
    EXPECT_THAT(text, AllOf(HasSubstr("\nlearning_rate: 2e-04\n"), HasSubstr("# peak learning rate\n"),
                            HasSubstr("\n#lora_r: 8\n"), HasSubstr("\n#warmup_ratio:\n"),
                            HasSubstr("\n# ---- Training\n")));
    EXPECT_EQ(text.find("pipeline_schedule") != std::string::npos, with_all_keys);
    for (size_t i = 0, end = 0; end != std::string::npos; i = end + 1) {
      end = text.find('\n', i);
      EXPECT_LE(std::min(end, text.size()) - i, 130u) << text.substr(i, 140);
    }
  }
  EXPECT_THAT(new_recipe(kAssignments, true), Not(HasSubstr("`")));
}

TEST(NewRecipeTest, EveryLineThatIsSwitchedOnIsAsItWas) {
  std::string text = new_recipe(kAssignments, true);
  const std::string before = dump_recipe(parse_recipe(text, "new.yaml"));
  // Comments have a blank after #; keys that are commented out have none.
  for (size_t i = 0; (i = text.find("\n#", i)) != std::string::npos; ++i) {
    if (text[i + 2] != ' ') text.erase(i + 1, 1);
  }
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(dump_recipe(parse_recipe(text, "new.yaml")), before);
  ::testing::internal::GetCapturedStderr();
}

TEST(NewRecipeTest, NeedsWhatIsRequired) {
  try {
    new_recipe({"base_model=m"}, false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("missing keys datasets, learning_rate"));
  }
}

TEST(NewRecipeTest, GuessesTheTypeOfRows) {
  const testing::TempFolder here;
  const auto guess = [&](const char* row) { return guess_dataset_type(here.write("r.jsonl", row)); };
  EXPECT_EQ(guess("{\"messages\": []}"), "chat_template");
  EXPECT_EQ(guess("{\"conversations\": []}"), "sharegpt");
  EXPECT_EQ(guess("{\"instruction\": \"a\", \"output\": \"text\"}"), "alpaca");
  EXPECT_EQ(guess("{\"text\": \"a\"}"), "completion");
  EXPECT_EQ(guess("{\"input_ids\": [1]}"), "");
  EXPECT_EQ(guess(""), "");
  EXPECT_EQ(guess_dataset_type(here / "nowhere"), "");
}

}  // namespace
}  // namespace tessera::config
