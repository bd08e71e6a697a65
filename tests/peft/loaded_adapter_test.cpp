#include "tessera/peft/loaded_adapter.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"

#include "tests/peft/made_adapters.h"
#include "tests/testing/temp_folder.h"

namespace tessera::peft {
namespace {

using models::load_reference_model;
using ::testing::HasSubstr;

struct Row {
  const char *family, *reason;  // why it cannot be loaded beside others; "" if it can
  std::function<void(LoraOptions&)> change;
};

const Row kRows[] = {
    {"llama3", "", [](auto&) {}},
    {"gpt2", "", [](auto& o) { o.has_bias = true; }},
    {"llama3", "", [](auto& o) { o.use_dora = true; }},
    {"llama3", "", [](auto& o) { o.method = AdapterMethod::Vera; }},
    {"llama3", "",
     [](auto& o) {
       o.method = AdapterMethod::Ia3;
       o.feedforward_modules = {o.target_modules.back()};
     }},
    {"mixtral", "",
     [](auto& o) {
       o.target_modules = {"q_proj", "w1"};
     }},
    {"llama3", "LN tuning",
     [](auto& o) {
       o.method = AdapterMethod::Norms;
       o.target_modules.clear();
     }},
    {"llama2", "modules_to_save", [](auto& o) { o.modules_to_save = {"lm_head"}; }},
    {"llama3", "trainable_token_indices", [](auto& o) { o.trainable_token_indices = {1}; }},
};

TEST(LoadedAdapter, IsTheAdapterAloneToTheLastBitAndLeavesTheBase) {
  for (const Row& row : kRows) {
    LoraOptions options = options_of(row.family);
    row.change(options);
    SCOPED_TRACE("row " + std::to_string(&row - kRows));
    const testing::TempFolder folder;
    {
      const auto model = models::build_model(reference_folder(row.family), at::kDouble);
      const LoraTargets targets = start_adapter(*model, row.family, options);
      add_noise(*model, targets);
      save_adapter(folder.path(), *model, options, targets);
    }
    const auto model = load_reference_model(row.family, at::kDouble),
               alone = load_reference_model(row.family, at::kDouble);
    const at::Tensor of_base = logits_of(*model);
    try {
      const LoadedAdapter adapter(*model, folder.path(), model->tied_modules(), kHost);
      EXPECT_STREQ(row.reason, "");
      EXPECT_TRUE(at::equal(logits_of(*model), of_base));
      load_adapter(*alone, folder.path());
      const at::Tensor want = logits_of(*alone);
      EXPECT_GT(models::max_difference(want, of_base), 1e-3);
      for (int turn = 0; turn < 2; ++turn) {
        adapter.put_on();
        EXPECT_TRUE(at::equal(logits_of(*model), want));
        adapter.take_off();
        EXPECT_TRUE(at::equal(logits_of(*model), of_base));
      }
    } catch (const Error& error) {
      EXPECT_STRNE(row.reason, "") << error.what();
      EXPECT_EQ(error.code(), "E-MODEL-ADAPTER");
      EXPECT_THAT(error.what(), HasSubstr(row.reason));
    }
  }
}

}  // namespace
}  // namespace tessera::peft
