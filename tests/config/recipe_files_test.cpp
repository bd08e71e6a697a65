// Tests whole files as users bring them: each becomes a recipe or is refused with reasons. They are the
// files of tests/config/recipes, and those of the folder that TESSERA_RECIPES names, such as the examples of
// Axolotl. For the latter the outcome of each, and the number of times that each reason came, are written to
// standard output.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/config/config_testing.h"
#include "tests/testing/temp_folder.h"

namespace tessera::config {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string ending = entry.path().extension().string();
    if (ending == ".yml" || ending == ".yaml" || ending == ".json") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Returns the error of reading the file; "" for a good one. A JSON file is read as DeepSpeed's.
std::string refusal_of(const std::string& file) {
  try {
    if (file.ends_with(".json")) {
      parse_recipe(kMinimal + "deepspeed: " + file + "\n", "r.yaml");
    } else {
      load_recipe_alone(file);
    }
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.kind()), 2) << file << ": " << error.what();
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << file << ": " << error.what();
    return error.what();
  }
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Returns a reason without its place and its value, by which it is counted.
std::string kind_of(const std::string& line) {
  const size_t place = line.find("]: "), what = line.find("key");
  if (place == std::string::npos || what == std::string::npos) return line;
  return line.substr(0, place + 3) + line.substr(what, line.find("; got") - what);
}

TEST(RecipeFilesTest, BecomeRecipesOrAreRefusedWithReasons) {
  std::vector<std::string> files = files_below(recipes_folder());
  const char* const more = std::getenv("TESSERA_RECIPES");
  if (more != nullptr) files = files_below(more);
  ASSERT_FALSE(files.empty());
  std::map<std::string, int64_t> reasons;
  int64_t good = 0;
  ::testing::internal::CaptureStderr();
  for (const std::string& file : files) {
    const std::string refusal = refusal_of(file);
    good += refusal.empty() ? 1 : 0;
    if (more != nullptr) std::printf("%s: %s\n", file.c_str(), refusal.empty() ? "good" : refusal.c_str());
    for (const std::string& line : lines_of(refusal)) {
      EXPECT_EQ(line.rfind("error[E-CONFIG-", 0), 0u) << line;
      EXPECT_TRUE(line.find(".y") != std::string::npos || line.find(".json:") != std::string::npos)
          << "no place: " << line;
      ++reasons[kind_of(line)];
    }
  }
  ::testing::internal::GetCapturedStderr();
  if (more == nullptr) return;
  std::printf("%ld of %zu files are good\n", static_cast<long>(good), files.size());
  for (const auto& [reason, count] : reasons)
    std::printf("%5ld %s\n", static_cast<long>(count), reason.c_str());
}

TEST(RecipeFilesTest, ExplainSaysWhereEachValueComesFrom) {
  const testing::TempFolder here;
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(here / name) << text;
    return here / name;
  };
  write("zero2.json", "{\"zero_optimization\":\n  {\"stage\": 2},\n \"gradient_clipping\": 0.5}\n");
  const std::string accelerate = write("accelerate.yaml", "mixed_precision: bf16\nnum_machines: 1\n");
  const std::string file =
      write("r.yaml", kMinimal + "deepspeed: zero2.json\nwarmup_ratio: 0.1\nlr_scheduler: linear\n");
  ::testing::internal::CaptureStderr();
  const Recipe recipe = load_recipe_alone(file, {"seed=7", "datasets.0.split=train"}, accelerate);
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(recipe.dtype, ComputeType::BFloat16);
  const std::string text = explain_recipe(recipe);
  const auto expect_line = [&](const std::string& start, const std::string& comment) {
    for (const std::string& line : lines_of(text)) {
      if (line.rfind(start, 0) != 0) continue;
      EXPECT_EQ(line.substr(line.find(" # ") + 3), comment) << line;
      return;
    }
    ADD_FAILURE() << "no line begins with " << start << "\n" << text;
  };
  expect_line("learning_rate: 1e-04", file + ":3");
  expect_line("warmup_ratio: 0.1", file + ":5");
  expect_line("seed: 7", "command line");
  expect_line("zero_stage: \"2\"", here / "zero2.json" + std::string(":2 (zero_optimization.stage)"));
  expect_line("max_grad_norm: 0.5", here / "zero2.json" + std::string(":3 (gradient_clipping)"));
  expect_line("dtype: \"bfloat16\"", accelerate + ":1 (mixed_precision)");
  expect_line("weight_decay: 0", "default");
  expect_line("  - path: \"d.jsonl\"", file + ":2");
  expect_line("    split: \"train\"", "command line");
  // The text is itself a recipe.
  EXPECT_EQ(dump_recipe(parse_recipe(text, "again.yaml")), dump_recipe(recipe));
}

TEST(RecipeFilesTest, AnAccelerateFileMustAgreeWithTheRecipe) {
  const testing::TempFolder here;
  std::ofstream(here / "a.yaml") << "mixed_precision: bf16\n";
  std::ofstream(here / "r.yaml") << kMinimal + "fp16: true\n";
  try {
    load_recipe_alone(here / "r.yaml", {}, here / "a.yaml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("keys 'fp16'"),
                                               ::testing::HasSubstr("'mixed_precision'"),
                                               ::testing::HasSubstr("disagree")));
  }
}

}  // namespace
}  // namespace tessera::config
