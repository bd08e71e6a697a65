// Adapters beyond plain LoRA: their formulas, their first values, and what a merge makes of their files.
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/checkpoint/coded_source.h"
#include "tessera/core/error.h"
#include "tessera/core/rng.h"
#include "tessera/io/file.h"
#include "tessera/io/json_reader.h"
#include "tessera/models/common/quantize_layers.h"
#include "tessera/nn/materialize.h"
#include "tessera/nn/random_scope.h"
#include "tessera/peft/adapter_start.h"
#include "tessera/peft/combine.h"
#include "tessera/peft/dora.h"
#include "tessera/peft/low_rank.h"
#include "tessera/peft/merge.h"

#include "tests/models/reference_models.h"
#include "tests/peft/made_adapters.h"
#include "tests/testing/temp_folder.h"

namespace tessera::peft {
namespace {

using models::load_reference_model;
using models::max_difference;
using models::reference_tensors;
using tessera::testing::TempFolder;
using ::testing::HasSubstr;

// The families have an output projection of their own, and one that shares the embedding.
TEST(AdapterKinds, RowsOfTokensStartAsThoseOfTheTable) {
  for (const char* family : {"llama3", "qwen2"}) {
    SCOPED_TRACE(family);
    const auto model = models::build_model(reference_folder(family), at::kDouble);
    LoraOptions options = options_of(family);
    options.trainable_token_indices = {9, 3, 15};
    start_adapter(*model, family, options);
    const at::Tensor want = logits_of(*load_reference_model(family, at::kDouble));
    EXPECT_LT(max_difference(logits_of(*model), want), 1e-11);
  }
}

// A new adapter changes nothing, whatever it takes from the base.
TEST(AdapterKinds, StartAsTheBaseModel) {
  for (const char* family : {"llama3", "gpt2", "mixtral"}) {
    const at::Tensor want = logits_of(*load_reference_model(family, at::kDouble));
    for (const char* start : {"true", "gaussian", "pissa", "pissa_niter_3", "olora"}) {
      for (const bool use_dora : {false, true}) {
        SCOPED_TRACE(std::string(family) + " " + start);
        const auto model = models::build_model(reference_folder(family), at::kDouble);
        LoraOptions options = options_of(family);
        options.start = start;
        options.use_dora = use_dora;
        if (std::string(family) == "mixtral") options.target_modules = {"q_proj", "w2"};
        start_adapter(*model, family, options);
        EXPECT_LT(max_difference(logits_of(*model), want), 1e-11);
      }
    }
  }
}

TEST(AdapterKinds, AreReadAsWrittenAndMerged) {
  for (const char* family : {"llama3", "gpt2", "qwen2"}) {
    for (const char* kind : {"dora", "pissa", "pissa_dora", "bias", "ia3", "ia3_all", "norms", "vera",
                             "vera_generated", "tokens"}) {
      SCOPED_TRACE(std::string(family) + " " + kind);
      const std::string name = kind;
      const bool has_bias = std::string(family) != "llama3";
      if (name == "bias" && !has_bias) continue;
      const TempFolder folder;
      LoraOptions options = options_of(family);
      options.use_dora = name.ends_with("dora");
      options.use_rslora = name == "pissa";
      if (name.starts_with("pissa")) options.start = "pissa";
      options.has_bias = name == "bias";
      if (options.has_bias && std::string(family) == "qwen2") options.target_modules = {"q_proj", "v_proj"};
      if (name.starts_with("ia3")) {
        options.method = AdapterMethod::Ia3;
        options.feedforward_modules = {options.target_modules.back()};
      }
      if (name == "ia3_all") {
        options.target_modules.clear();
        options.all_linear = true;
        options.feedforward_modules = {std::string(family) == "gpt2" ? "mlp.c_proj" : "up_proj"};
      }
      if (name.starts_with("vera")) {
        options.method = AdapterMethod::Vera;
        options.vera = {.rank = 6, .projection_prng_key = 5, .save_projection = name == "vera"};
      }
      if (name == "tokens") options.trainable_token_indices = {9, 3, 15};
      if (name == "norms") {
        options.method = AdapterMethod::Norms;
        options.target_modules.clear();
      }
      const auto first = models::build_model(reference_folder(family), at::kDouble);
      const LoraTargets targets = start_adapter(*first, family, options);
      const at::Tensor before = logits_of(*first);
      add_noise(*first, targets);
      const at::Tensor want = logits_of(*first);
      EXPECT_GT(max_difference(before, want), 1e-3);
      save_adapter(folder / "adapter", *first, options, targets);

      const auto second = load_reference_model(family, at::kDouble);
      load_adapter(*second, folder / "adapter");
      EXPECT_LT(max_difference(logits_of(*second), want), 1e-11);
      merge_adapter(reference_tensors(family), folder / "adapter", folder / "merged", false, DType::F64);
      const auto merged = models::build_model(folder / "merged", at::kDouble);
      models::load_weights(*merged, io::ModelFiles::open(folder / "merged"));
      EXPECT_LT(max_difference(logits_of(*merged), want), 1e-11);
    }
  }
}

TEST(AdapterKinds, FilesThatContradictThemselvesAreRefused) {
  const TempFolder folder;
  const auto write = [&](const std::string& name, const LoraOptions& options, const char* key,
                         const char* value) {
    const auto model = models::build_model(reference_folder("llama3"), at::kDouble);
    const LoraTargets targets = start_adapter(*model, "llama3", options);
    save_adapter(folder / name, *model, options, targets);
    const std::string file = folder / (name + "/adapter_config.json");
    auto config = nlohmann::json::parse(io::JsonReader::read_text(file));
    config[key] = nlohmann::json::parse(value);
    io::write_file_atomic(file, config.dump());
  };
  const auto text_of = [](const std::function<void()>& work) -> std::string {
    try {
      work();
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  const auto load = [&](const std::string& name) {
    return text_of([&] { load_adapter(*load_reference_model("llama3", at::kDouble), folder / name); });
  };
  const auto merge = [&](const std::string& name) {
    return text_of(
        [&] { merge_adapter(reference_tensors("llama3"), folder / name, folder / (name + "_merged")); });
  };
  LoraOptions vera = options_of("llama3"), ia3 = vera, tokens = vera;
  vera.method = AdapterMethod::Vera;
  vera.vera = {.rank = 6, .save_projection = false};
  write("promise", vera, "save_projection", "true");
  for (const std::string& text : {load("promise"), merge("promise")})
    EXPECT_THAT(text, HasSubstr("the adapter lacks a matrix that save_projection promises"));
  vera.vera.save_projection = true;
  write("rank", vera, "r", "5");
  EXPECT_THAT(load("rank"),
              HasSubstr("the shared matrix does not fit the layers; got [6, 28], need [5, 28]"));
  EXPECT_THAT(merge("rank"), HasSubstr("E-MODEL-ADAPTER"));
  ia3.method = AdapterMethod::Ia3;
  write("kind", ia3, "peft_type", "\"VERA\"");
  EXPECT_THAT(merge("kind"), HasSubstr("not of the kind of adapter that its configuration says"));
  tokens.trainable_token_indices = {3, 5};
  write("ids", tokens, "trainable_token_indices", "[3, 97]");
  EXPECT_THAT(load("ids"), HasSubstr("the vocabulary has no such token; got 97, need 0 to 96"));
  EXPECT_THAT(merge("ids"), HasSubstr("the base's vocabulary has no such token; got 97"));
  write("more", tokens, "trainable_token_indices", R"({"model.embed_tokens": [3, 5, 6]})");
  EXPECT_THAT(load("more"), HasSubstr("E-MODEL-ADAPTER"));
  write("head", tokens, "trainable_token_indices", R"({"lm_head": [3, 5]})");
  EXPECT_THAT(load("head"), HasSubstr("need rows of the token embedding alone"));
}

// Compares with PEFT's add_weighted_adapter() (tests/reference/make_adapter_reference.py).
TEST(AdapterKinds, SeveralAreCombinedAsInPeft) {
  const std::string data = tessera::testing::source_folder() + "/tests/reference/data/";
  const models::TensorFile want(data + "adapters/combined.safetensors");
  const std::string first = "first=" + data + "training/lora_initial:0.75";
  for (const auto& [name, second, combination] :
       {std::tuple("logits_cat", "adapters/selection_initial", Combination::Cat),
        std::tuple("logits_linear", "training/lora_final", Combination::Linear)}) {
    SCOPED_TRACE(name);
    const TempFolder folder;
    const AdapterSet set{{read_weighted_adapter(first), read_weighted_adapter(data + second + ":-0.5")},
                         combination};
    std::filesystem::create_directory(folder / "both");
    combine_adapters(set, folder / "both");
    const auto model = load_reference_model("llama3", at::kDouble);
    load_adapter(*model, folder / "both");
    const at::NoGradGuard no_grad;
    model->eval();
    EXPECT_LT(max_difference(model->logits(models::pack_ids(want.get("ids"))), want.get(name)), 1e-4);
    merge_adapter(reference_tensors("llama3"), folder / "both", folder / "merged", false, DType::F64);
    const auto merged = models::build_model(folder / "merged", at::kDouble);
    models::load_weights(*merged, io::ModelFiles::open(folder / "merged"));
    EXPECT_LT(max_difference(logits_of(*merged), logits_of(*model)), 1e-11);
  }
}

TEST(AdapterKinds, CombinationsThatHaveNoMeaningAreRefused) {
  const std::string data = tessera::testing::source_folder() + "/tests/reference/data/";
  const auto text_of = [&](const std::string& first, const std::string& second, Combination combination) {
    const TempFolder folder;
    try {
      combine_adapters({{{data + first, 1.0}, {data + second, 0.5}}, combination}, folder.path());
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  const std::string plain = "training/lora_initial";
  EXPECT_THAT(text_of(plain, "adapters/dora_initial", Combination::Cat),
              HasSubstr("DoRA's change is not a sum"));
  EXPECT_THAT(text_of(plain, "adapters/ia3_initial", Combination::Cat), HasSubstr("not of kind LORA"));
  EXPECT_THAT(text_of(plain, "adapters/tokens_initial", Combination::Cat),
              HasSubstr("rows of the embedding"));
  EXPECT_THAT(text_of(plain, "adapters/experts_down_initial", Combination::Cat),
              HasSubstr("parameters of experts"));
  EXPECT_EQ(text_of(plain, plain, Combination::Linear), "");
  EXPECT_THROW(read_weighted_adapter("folder:nan"), Error);
  EXPECT_EQ(read_weighted_adapter("name=org/folder:0.5").folder, "org/folder");
  EXPECT_EQ(read_weighted_adapter("org/folder").weight, 1.0);
}

// PEFT: y = W x + b + (m / n (W + s B A) - W) (x * mask).
TEST(AdapterKinds, DropoutOfDoraIsOnTheChangeOfTheLayer) {
  for (const char* start : {"true", "olora"}) {
    const auto layer = std::make_shared<nn::Linear>(6, 5, true, at::kDouble);
    LoraOptions options;
    options.rank = 2;
    options.alpha = 3.0;
    options.dropout = 0.4;
    options.use_dora = true;
    options.start = start;
    const auto adapter = std::make_shared<LoraAdapter>(*layer, options, "site");
    layer->set_adapter(adapter, "site");
    at::manual_seed(5);
    for (auto& item : layer->named_parameters())
      nn::materialize(item.value(), at::randn(item.value().sizes(), at::kDouble));
    const auto p = layer->named_parameters();
    const at::Tensor x = at::randn({7, 6}, at::kDouble);
    const nn::RandomScope scope({1, 2, 3});
    const at::Tensor dropped = x * nn::dropout_mask_here(x, 0.4, stream_of("site.lora_dropout"));
    at::Tensor base = p["weight"];
    if (p.contains("lora_A_start.weight"))
      base = base + 1.5 * at::matmul(p["lora_B_start.weight"], p["lora_A_start.weight"]);
    const at::Tensor changed = base + 1.5 * at::matmul(p["lora_B.weight"], p["lora_A.weight"]);
    const at::Tensor factors = p["lora_magnitude_vector.weight"] / changed.detach().norm(2, 1);
    const at::Tensor want =
        at::linear(x, base, p["bias"]) + at::linear(dropped, factors.unsqueeze(1) * changed - base);
    EXPECT_LT(max_difference(layer->forward(x), want), 1e-12);
    const at::Tensor weights = at::randn({7, 5}, at::kDouble);
    const auto gradients = [&](const at::Tensor& y) {
      for (auto& item : layer->named_parameters()) item.value().mutable_grad() = at::Tensor();
      (y * weights).sum().backward();
      std::vector<at::Tensor> all;
      for (const char* name : {"lora_A.weight", "lora_B.weight", "lora_magnitude_vector.weight"})
        all.push_back(p[name].grad().clone());
      return all;
    };
    const auto got = gradients(layer->forward(x)), wanted = gradients(want);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_LT(max_difference(got[i], wanted[i]), 1e-12) << i;
  }
}

TEST(AdapterKinds, FirstFactorsAreTheMainPartOfTheWeight) {
  at::manual_seed(2);
  const at::Tensor weight =
      at::matmul(at::randn({9, 7}, at::kDouble), at::diag(at::logspace(1, -3, 7, 10).to(at::kDouble)));
  const auto [left, values, right] = at::linalg_svd(weight, false);
  const at::Tensor best = at::matmul(left.narrow(1, 0, 3) * values.narrow(0, 0, 3), right.narrow(0, 0, 3));
  for (const char* start : {"pissa", "pissa_niter_8"}) {
    const LowRank factors = initial_factors(weight, 3, 2.0, lora_start(start), 4);
    EXPECT_LT(max_difference(2.0 * at::matmul(factors.b, factors.a), best), 1e-7) << start;
    // Both factors take the same part of each singular value.
    EXPECT_LT(max_difference(factors.a.norm(2, 1), factors.b.norm(2, 0)), 1e-12);
  }
  const LowRank olora = initial_factors(weight, 3, 2.0, lora_start("olora"), 4);
  const auto [q, r] = at::linalg_qr(weight);
  EXPECT_LT(max_difference(at::matmul(olora.b, olora.a), at::matmul(q.narrow(1, 0, 3), r.narrow(0, 0, 3))),
            1e-12);
  EXPECT_LT(max_difference(at::matmul(olora.b.t(), olora.b), at::eye(3, at::kDouble)), 1e-12);
}

// The best correction of rank r leaves the singular values of W - W' from number r + 1 on.
TEST(AdapterKinds, LoftqBeginsWithWhatQuantisationTakesAway) {
  using Kind = models::QuantizeOptions::Kind;
  for (const Kind kind : {Kind::FourBit, Kind::EightBit}) {
    const std::string folder = reference_folder("llama3"), block = "model.layers.1.self_attn.";
    const auto model = models::build_model(folder, at::kFloat);
    const auto base = files_of(*models::build_model(folder, at::kFloat), "llama3");
    auto coded = models::quantize_layers(*model, models::state_dict_adapter(*model), nullptr,
                                         {.kind = kind, .skipped = {"v_proj"}});
    LoraOptions options = options_of("llama3");
    options.start = "loftq";
    const LoraTargets targets = apply_lora(*model, options);
    const auto plain = std::make_shared<checkpoint::SourceList>(
        std::vector<std::shared_ptr<const checkpoint::ParameterSource>>{base,
                                                                        models::random_source(*model, 3)});
    const auto values = checkpoint::coded_source(plain, nullptr, std::move(coded));
    const auto start = with_adapter_start(values, *model, options, targets, plain);
    const auto read = [&](const checkpoint::ParameterSource& source, const std::string& name,
                          const std::vector<int64_t>& shape) {
      const at::Tensor value = at::empty(shape, at::kDouble);
      source.read(block + name, checkpoint::whole_box(shape), value);
      return value;
    };
    const auto& layer = dynamic_cast<const nn::Linear&>(*model->named_modules()[block + "q_proj"]);
    const int64_t out = layer.out_features(), in = layer.in_features();
    const at::Tensor missing =
        read(*plain, "q_proj.weight", {out, in}) - read(*start, "q_proj.weight", {out, in});
    const at::Tensor change = lora_scaling(options) * at::mm(read(*start, "q_proj.lora_B.weight", {out, 3}),
                                                             read(*start, "q_proj.lora_A.weight", {3, in}));
    const at::Tensor rest = at::linalg_svdvals(missing).narrow(0, 3, std::min(in, out) - 3);
    EXPECT_GT(change.norm().item<double>(), 0.1 * missing.norm().item<double>());
    EXPECT_NEAR((missing - change).norm().item<double>(), rest.norm().item<double>(), 1e-12);
    // A layer that keeps its values has nothing to correct.
    const auto& kept = dynamic_cast<const nn::Linear&>(*model->named_modules()[block + "v_proj"]);
    const at::Tensor b = read(*start, "v_proj.lora_B.weight", {kept.out_features(), 3});
    EXPECT_EQ(b.abs().max().item<double>(), 0.0);
    EXPECT_GT(read(*start, "v_proj.lora_A.weight", {3, in}).abs().max().item<double>(), 0.0);
  }
}

TEST(AdapterKinds, ARowOfZerosHasNoLength) {
  const at::Tensor weight = at::zeros({2, 3}, at::kDouble);
  weight[1].fill_(2.0);
  const at::Tensor norms =
      row_norms(weight, at::zeros({1, 3}, at::kDouble), at::zeros({2, 1}, at::kDouble), 1.0);
  EXPECT_EQ(norms[0].item<double>(), 1.0);
  EXPECT_NEAR(norms[1].item<double>(), std::sqrt(12.0), 1e-14);
}

TEST(AdapterKinds, WhatCannotWorkIsRefused) {
  const auto text_of = [](const std::function<void(LoraOptions&)>& change) -> std::string {
    LoraOptions options = options_of("llama3");
    change(options);
    try {
      apply_lora(*load_reference_model("llama3", at::kFloat), options);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_THAT(text_of([](auto& o) {
                o.start = "pissa";
                o.rank = 200;
              }),
              HasSubstr("the rank is above that of the weight"));
  EXPECT_THAT(text_of([](auto& o) { o.start = "pissa_niter_0"; }),
              HasSubstr("unknown start of LoRA factors"));
  EXPECT_THAT(text_of([](auto& o) { o.use_dora = o.has_bias = true; }), HasSubstr("no bias of its own"));
  EXPECT_THAT(text_of([](auto& o) { o.target_parameters = {"experts.down_proj"}; }),
              HasSubstr("no parameter of the model's experts is named 'experts.down_proj'"));
  EXPECT_THAT(text_of([](auto& o) {
                o.target_parameters = {"experts.down_proj"};
                o.use_dora = true;
              }),
              HasSubstr("(lora_target_parameters) has no DoRA"));
  EXPECT_THAT(text_of([](auto& o) {
                o.method = AdapterMethod::Prompt;
                o.prompt.num_virtual_tokens = 0;
              }),
              HasSubstr("bad number of virtual tokens; got 0"));
  EXPECT_THAT(text_of([](auto& o) { o.method = AdapterMethod::Norms; }),
              HasSubstr("no norm of the model is named 'q_proj'"));
  EXPECT_THAT(text_of([](auto& o) {
                o.method = AdapterMethod::Norms;
                o.target_modules.clear();
                o.all_linear = true;
              }),
              HasSubstr("norms are not linear layers"));
  EXPECT_THAT(text_of([](auto& o) { o.trainable_token_indices = {1 << 20}; }),
              HasSubstr("the vocabulary has no such token"));
  EXPECT_THAT(text_of([](auto& o) {
                o.trainable_token_indices = {4, 4};
              }),
              HasSubstr("a token stands twice"));
  EXPECT_THAT(text_of([](auto& o) {
                o.trainable_token_indices = {4};
                o.modules_to_save = {"embed_tokens"};
              }),
              HasSubstr("rows of 'model.embed_tokens' are to be trained, and all of it"));
  EXPECT_THAT(text_of([](auto& o) {
                o.method = AdapterMethod::Ia3;
                o.feedforward_modules = {"up_proj"};
              }),
              HasSubstr("'up_proj' of ia3_feedforward_modules is no target"));
}

}  // namespace
}  // namespace tessera::peft
