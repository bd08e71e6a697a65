// Checks the pages that the program writes with the Nu validator of HTML (validator.github.io).
#include <cstdlib>

#include "tests/integration/fixture.h"
#include "tests/testing/skip.h"

namespace tessera::testing {
namespace {

class PagesTest : public ProgramTest {
 protected:
  // Returns the validator's command: the jar or program that TESSERA_VNU names, or vnu; empty if there is
  // none.
  static Words validator() {
    const char* named = std::getenv("TESSERA_VNU");
    const std::string vnu = named != nullptr ? named : "vnu";
    const bool is_jar = vnu.ends_with(".jar");
    const std::string look = is_jar ? "command -v java > /dev/null && test -r " + vnu : "command -v " + vnu;
    if (run_command({"sh", "-c", look}).exit_code != 0) return {};
    return is_jar ? Words{"java", "-jar", vnu} : Words{vnu};
  }
};

TEST_F(PagesTest, HaveNoErrorAndNoWarning) {
  const Words vnu = validator();
  if (vnu.empty()) GTEST_SKIP() << skip::kValidator;
  // A run of more than 60 steps has smoothed lines.
  const Words run = {"max_steps=70",  "logging_steps=1", "val_set_size=4",
                     "eval_steps=20", "save_steps=50",   "eval_table_size=2"};
  train_well(with(run, {"output_dir=first <i>&"}));
  train_well({"max_steps=3", "output_dir=second", "learning_rate=0.5"});
  run_well({"report", "first <i>&", "-o", "one.html"});
  run_well({"report", "first <i>&", "second", "-o", "both.html"});
  run_well({"data", "show", "recipe.yaml", "--html", "rows.html"});
  run_well({"data", "show", "recipe.yaml", "sample_packing=true", "sequence_len=64", "val_set_size=5",
            "--html", "packed.html"});
  const ProgramResult found = run_command(with(
      vnu, {"--Werror", here / "one.html", here / "both.html", here / "rows.html", here / "packed.html"}));
  EXPECT_EQ(found.exit_code, 0) << found.told();
}

}  // namespace
}  // namespace tessera::testing
