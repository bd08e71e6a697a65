#include "tessera/peft/row_adapters.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"

#include "tests/peft/made_adapters.h"
#include "tests/testing/temp_folder.h"

namespace tessera::peft {
namespace {

using models::load_reference_model;
using models::max_difference;
using ::testing::HasSubstr;

// Adapters of other ranks, scales and layers.
std::vector<LoraOptions> several(const std::string& family) {
  LoraOptions plain = options_of(family), scaled = plain, narrow = plain;
  scaled.rank = 5;
  scaled.use_rslora = true;
  scaled.rank_pattern = {{plain.target_modules.front(), 2}};
  narrow.target_modules = {plain.target_modules.back()};
  narrow.has_bias = true;
  return {plain, scaled, narrow};
}

// The logits of prompts of several lengths, and of one more token of each, [2 sequences, vocabulary].
at::Tensor decoded(models::CausalLM& model, const std::vector<int64_t>& adapters, size_t first = 0) {
  nn::KvCache cache(model.cache_options());
  std::vector<models::NewTokens> prompts, next;
  for (size_t i = first; i < first + adapters.size(); ++i) {
    const int64_t sequence = cache.add(), adapter = adapters[i - first];
    std::vector<int64_t> ids;
    for (size_t t = 0; t < 3 + i; ++t) ids.push_back(static_cast<int64_t>((5 * t + 7 * i) % 16));
    prompts.push_back({sequence, ids, 1, adapter});
    next.push_back({sequence, {static_cast<int64_t>(i)}, 1, adapter});
  }
  const at::Tensor of_prompts = model.next_logits(cache, prompts);
  return at::cat({of_prompts, model.next_logits(cache, next)});
}

TEST(RowAdapters, RowsOfOnePassGetEachItsOwn) {
  for (const std::string family : {"llama3", "gpt2"}) {
    SCOPED_TRACE(family);
    const testing::TempFolder folder;
    std::vector<std::string> folders;
    const auto options = several(family);
    for (size_t i = 0; i < options.size(); ++i) {
      folders.push_back(folder / std::to_string(i));
      write_adapter(folders.back(), family, options[i]);
    }
    const auto model = load_reference_model(family, at::kDouble);
    model->eval();
    const std::vector<int64_t> none(5, nn::AdapterRows::kNoAdapter), mixed = {2, 0, 1, 3, 2};
    const at::Tensor of_base = decoded(*model, none);
    model->set_adapter_rows(apply_row_adapters(*model, *model, folders, model->tied_modules(), kHost));
    model->eval();
    EXPECT_TRUE(at::equal(decoded(*model, none), of_base));
    const at::Tensor all = decoded(*model, mixed);
    for (size_t i = 0; i < mixed.size(); ++i) {
      const auto alone = load_reference_model(family, at::kDouble);
      if (mixed[i] > 0) load_adapter(*alone, folders[static_cast<size_t>(mixed[i]) - 1]);
      alone->eval();
      const at::Tensor want = decoded(*alone, {0}, i);
      const auto row = static_cast<int64_t>(i);
      const at::Tensor got = at::stack({all[row], all[row + std::ssize(mixed)]});
      EXPECT_LT(max_difference(got, want), 1e-11) << "sequence " << i;
      EXPECT_EQ(max_difference(want[0], of_base[row]) > 1e-3, mixed[i] > 0) << "sequence " << i;
    }
    // Sequences that choose adapters do not change what other passes give.
    EXPECT_TRUE(at::equal(logits_of(*model), logits_of(*load_reference_model(family, at::kDouble))));
  }
}

TEST(RowAdapters, WhatRowsCannotChooseIsRefused) {
  struct Row {
    const char *family, *reason;
    std::function<void(LoraOptions&)> change;
  };
  const Row rows[] = {
      {"llama3", "not of kind LORA", [](auto& o) { o.method = AdapterMethod::Vera; }},
      {"llama3", "use_dora", [](auto& o) { o.use_dora = true; }},
      {"llama2", "modules_to_save", [](auto& o) { o.modules_to_save = {"lm_head"}; }},
      {"llama3", "trainable_token_indices", [](auto& o) { o.trainable_token_indices = {1}; }},
      {"mixtral", "experts", [](auto& o) { o.target_modules = {"w1"}; }},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.reason);
    const testing::TempFolder folder;
    LoraOptions options = options_of(row.family);
    row.change(options);
    write_adapter(folder.path(), row.family, options);
    const auto model = load_reference_model(row.family, at::kDouble);
    try {
      apply_row_adapters(*model, *model, {folder.path()}, model->tied_modules(), kHost);
      ADD_FAILURE() << "was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), "E-MODEL-ADAPTER");
      EXPECT_THAT(error.what(), HasSubstr(row.reason));
    }
  }
}

}  // namespace
}  // namespace tessera::peft
