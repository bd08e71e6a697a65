#include "tessera/peft/lora.h"

#include <thread>

#include <ATen/ThreadLocalState.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/checkpoint/random_source.h"
#include "tessera/core/error.h"
#include "tessera/nn/call_hook.h"
#include "tessera/nn/materialize.h"
#include "tessera/nn/random_scope.h"
#include "tessera/nn/sparse_mlp.h"
#include "tessera/parallel/activation_checkpoint.h"
#include "tessera/peft/targets.h"

#include "tests/models/small_model.h"
#include "tests/testing/gradcheck.h"

namespace tessera::peft {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

struct Block : torch::nn::Module {
  explicit Block(at::ScalarType dtype) {
    q_proj = register_module("q_proj", std::make_shared<nn::Linear>(6, 4, true, dtype));
    up_proj = register_module("up_proj", std::make_shared<nn::Linear>(4, 6, false, dtype));
  }
  at::Tensor forward(const at::Tensor& x) { return up_proj->forward(q_proj->forward(x)); }
  std::shared_ptr<nn::Linear> q_proj, up_proj;
};

struct Model : torch::nn::Module {
  explicit Model(at::ScalarType dtype = at::kDouble) {
    for (int i = 0; i < 2; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>(dtype)));
    }
    lm_head = register_module("lm_head", std::make_shared<nn::Linear>(6, 5, false, dtype));
    lm_head->refuse_adapter("is special");
  }
  at::Tensor forward(const at::Tensor& x) {
    return lm_head->forward(blocks[1]->forward(blocks[0]->forward(x)));
  }
  std::vector<std::shared_ptr<Block>> blocks;
  std::shared_ptr<nn::Linear> lm_head;
};

// Fills base parameters with random numbers and LoRA parameters by their initialiser. `b_scale` replaces the
// zeros of B.
void fill(Model& model, double b_scale = 0.0) {
  at::manual_seed(4);
  const checkpoint::RandomSource source(model, 1.0, 9);
  for (auto& item : model.named_parameters()) {
    const at::Tensor value = at::randn(item.value().sizes(), item.value().scalar_type());
    if (is_lora_parameter(item.key())) {
      const at::Tensor noise = value.clone();
      source.read(item.key(), checkpoint::whole_box(value.sizes().vec()), value);
      if (item.key().ends_with("lora_B.weight")) value.add_(noise, b_scale);
    }
    nn::materialize(item.value(), value);
  }
}

LoraOptions all_linear() {
  LoraOptions options;
  options.rank = 2;
  options.alpha = 6.0;
  options.all_linear = true;
  return options;
}

std::string error_of(const LoraOptions& options, const std::vector<std::string>& untouchable = {}) {
  Model model;
  try {
    apply_lora(model, options, untouchable);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Config);
    return error.what();
  }
}

TEST(Lora, StartsAsTheIdentity) {
  Model plain, adapted;
  apply_lora(adapted, all_linear());
  fill(plain);
  fill(adapted);
  for (auto& item : adapted.named_parameters()) {
    if (!is_lora_parameter(item.key()))
      nn::materialize(item.value(), plain.named_parameters()[item.key()].detach());
  }
  const at::Tensor x = at::randn({3, 6}, at::kDouble);
  EXPECT_TRUE(at::equal(adapted.forward(x), plain.forward(x)));
}

TEST(Lora, AddsTheScaledProduct) {
  for (const bool use_rslora : {false, true}) {
    Model model;
    LoraOptions options = all_linear();
    options.rank = 4;
    options.use_rslora = use_rslora;
    apply_lora(model, options);
    fill(model, 0.5);
    const auto p = model.named_parameters();
    const at::Tensor x = at::randn({3, 6}, at::kDouble);
    const at::Tensor want =
        at::linear(x, p["block0.q_proj.weight"], p["block0.q_proj.bias"]) +
        (use_rslora ? 3.0 : 1.5) * at::matmul(at::matmul(x, p["block0.q_proj.lora_A.weight"].t()),
                                              p["block0.q_proj.lora_B.weight"].t());
    EXPECT_TRUE(at::allclose(model.blocks[0]->q_proj->forward(x), want, 1e-12, 1e-12));
  }
}

TEST(Lora, OnlyTheAdapterIsTrained) {
  Model model;
  const LoraTargets targets = apply_lora(model, all_linear());
  EXPECT_THAT(targets.adapted,
              UnorderedElementsAre("block0.q_proj", "block0.up_proj", "block1.q_proj", "block1.up_proj"));
  fill(model, 0.5);
  const at::Tensor x = at::randn({3, 6}, at::kDouble);
  model.forward(x).pow(2).sum().backward();
  int64_t trained = 0;
  for (const auto& item : model.named_parameters()) {
    EXPECT_EQ(item.value().requires_grad(), is_lora_parameter(item.key())) << item.key();
    EXPECT_EQ(item.value().grad().defined(), is_lora_parameter(item.key())) << item.key();
    trained += is_lora_parameter(item.key()) ? 1 : 0;
  }
  EXPECT_EQ(trained, 8);
}

TEST(Lora, GradientsAgreeWithFiniteDifferences) {
  Model model;
  LoraOptions options = all_linear();
  options.modules_to_save = {"lm_head"};
  options.dropout = 0.3;
  apply_lora(model, options);
  fill(model, 0.5);
  const at::Tensor x = at::randn({3, 6}, at::kDouble);
  const nn::RandomScope scope({1, 2, 3});
  const auto loss = [&] { return model.forward(x).pow(2).sum(); };
  loss().backward();
  for (const auto& item : model.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    at::NoGradGuard no_grad;
    const at::Tensor flat = item.value().detach().view({-1});
    const at::Tensor gradient = item.value().grad().view({-1});
    for (int64_t i = 0; i < flat.numel(); ++i) {
      const double kept = flat[i].item<double>(), step = 1e-6;
      flat[i] = kept + step;
      const double above = loss().item<double>();
      flat[i] = kept - step;
      const double below = loss().item<double>();
      flat[i] = kept;
      const double want = (above - below) / (2.0 * step);
      EXPECT_NEAR(gradient[i].item<double>(), want, 1e-6 * (1.0 + std::abs(want))) << item.key() << " " << i;
    }
  }
}

TEST(Lora, DropoutIsAFunctionOfPlaceAndEndsWithTraining) {
  Model model;
  LoraOptions options = all_linear();
  options.dropout = 0.5;
  apply_lora(model, options);
  fill(model, 0.5);
  const at::Tensor x = at::randn({7, 6}, at::kDouble);
  const auto at_place = [&](nn::RandomPlace place) {
    const nn::RandomScope scope(place);
    return model.forward(x).detach();
  };
  EXPECT_TRUE(at::equal(at_place({1, 2, 3}), at_place({1, 2, 3})));
  EXPECT_FALSE(at::equal(at_place({1, 2, 3}), at_place({1, 3, 3})));
  EXPECT_THROW(model.forward(x), Error) << "training without a place";

  model.eval();
  const at::Tensor evaluated = model.forward(x).detach();
  EXPECT_TRUE(at::equal(evaluated, at_place({1, 2, 3})));
  // Each dropout site draws its own masks: equal inputs of two layers lose different elements.
  model.train();
  const nn::RandomScope scope({1, 2, 3});
  for (const char* name : {"lora_A.weight", "lora_B.weight", "weight", "bias"}) {
    auto parameters = model.named_parameters();
    parameters["block1.q_proj." + std::string(name)].set_data(
        parameters["block0.q_proj." + std::string(name)].detach().clone());
  }
  EXPECT_FALSE(at::equal(model.blocks[0]->q_proj->forward(x), model.blocks[1]->q_proj->forward(x)));
}

// An expert's rows are some of the tokens, sorted by their experts. Each token loses the same elements
// wherever it lies.
TEST(Lora, ExpertsDropByToken) {
  struct Sparse : torch::nn::Module {
    Sparse() {
      layer = register_module("mlp",
                              std::make_shared<nn::SparseMLP>(
                                  nn::SparseMLPOptions{.num_experts = 4,
                                                       .experts_per_token = 2,
                                                       .expert = {.hidden_size = 6, .intermediate_size = 5}},
                                  at::kDouble));
    }
    std::shared_ptr<nn::SparseMLP> layer;
  };
  for (const bool recomputes : {false, true}) {
    Sparse model;
    LoraOptions options = all_linear();
    options.dropout = 0.5;
    apply_lora(model, options);
    at::manual_seed(3);
    for (auto& item : model.named_parameters())
      nn::materialize(item.value(), at::randn(item.value().sizes(), at::kDouble));
    if (recomputes) model.layer->recompute_hidden();
    const at::Tensor all = at::randn({9, 6}, at::kDouble);
    // Returns the output for the tokens, and the gradient of its sum.
    const auto run = [&](const at::Tensor& x, const nn::RandomPlace& place) {
      const at::Tensor in = x.clone().set_requires_grad(true);
      const nn::RandomScope scope(place);
      const at::Tensor y = model.layer->forward(in, {});
      y.sum().backward();
      return std::pair{y.detach(), in.grad()};
    };
    const auto [whole, gradient] = run(all, {1, 2, 3});
    const nn::TokenPart ends = std::vector<nn::TokenRun>{{7, 2}, {0, 3}};
    const auto [part, part_gradient] =
        run(at::cat({all.narrow(0, 7, 2), all.narrow(0, 0, 3)}), {1, 2, 3, ends});
    const auto of_ends = [](const at::Tensor& x) { return at::cat({x.narrow(0, 7, 2), x.narrow(0, 0, 3)}); };
    EXPECT_TRUE(at::allclose(part, of_ends(whole), 1e-12, 1e-13));
    EXPECT_TRUE(at::allclose(part_gradient, of_ends(gradient), 1e-12, 1e-13));
    EXPECT_FALSE(at::allclose(run(all, {1, 2, 4}).first, whole)) << "another sequence";
    EXPECT_FALSE(at::allclose(run(all, {1, 3, 3}).first, whole)) << "another step";
    model.eval();
    const at::Tensor evaluated = run(all, {1, 2, 3}).first;
    EXPECT_FALSE(at::allclose(evaluated, whole));
    EXPECT_TRUE(at::equal(evaluated, model.layer->forward(all, {}).detach()));
  }
}

// The backward runs on another thread, as it does for a device. Activations that are recomputed there draw
// the masks of the forward.
TEST(Lora, DropoutIsRecomputedByABackwardOnAnotherThread) {
  Model model;
  LoraOptions options = all_linear();
  options.dropout = 0.5;
  apply_lora(model, options);
  fill(model, 0.5);
  Block& block = *model.blocks[0];
  parallel::checkpoint_activations(block);
  const at::Tensor x = at::randn({7, 6}, at::kDouble);
  const auto gradient = [&](bool on_another_thread) {
    model.zero_grad();
    const nn::RandomScope scope({1, 2, 3});
    const at::Tensor loss = nn::call(block, x).pow(2).sum();
    const auto backward = [&, state = at::ThreadLocalState()] {
      const at::ThreadLocalStateGuard guard(state);
      loss.backward();
    };
    on_another_thread ? std::thread(backward).join() : backward();
    return block.named_parameters()["q_proj.lora_A.weight"].grad().clone();
  };
  const at::Tensor want = gradient(false);
  EXPECT_GT(want.norm().item<double>(), 0.0);
  EXPECT_TRUE(at::equal(gradient(true), want));
}

TEST(Lora, TargetsByNameSuffixAndExpression) {
  const auto adapted = [](const std::function<void(LoraOptions&)>& change) {
    Model model;
    LoraOptions options = all_linear();
    options.all_linear = false;
    change(options);
    return apply_lora(model, options).adapted;
  };
  EXPECT_THAT(adapted([](auto& o) { o.target_modules = {"q_proj"}; }),
              ElementsAre("block0.q_proj", "block1.q_proj"));
  EXPECT_THAT(adapted([](auto& o) {
                o.target_modules = {"block1.q_proj", "up_proj"};
              }),
              UnorderedElementsAre("block0.up_proj", "block1.q_proj", "block1.up_proj"));
  EXPECT_THAT(adapted([](auto& o) { o.target_regex = R"(block\d\.(up|down)_proj)"; }),
              ElementsAre("block0.up_proj", "block1.up_proj"));
  EXPECT_THAT(adapted([](auto& o) { o.target_regex = R"((?=.*1).*q_proj)"; }), ElementsAre("block1.q_proj"));
}

TEST(Lora, SomeTargetsAreLeftOut) {
  const auto model = models::small_model(/*tied=*/true, at::kFloat);
  const auto adapted = [&](const std::function<void(LoraOptions&)>& change) {
    LoraOptions options;
    options.target_modules = {"q_proj", "down_proj"};
    change(options);
    return find_lora_targets(*model, options).adapted;
  };
  const std::string first = "model.layers.0.", second = "model.layers.1.";
  EXPECT_THAT(adapted([](auto& o) {
                o.exclude_modules = {"q_proj", "0.mlp.down_proj"};
              }),
              ElementsAre(second + "mlp.down_proj"));
  EXPECT_THAT(adapted([](auto& o) { o.exclude_regex = R"(.*\.0\..*)"; }),
              UnorderedElementsAre(second + "self_attn.q_proj", second + "mlp.down_proj"));
  EXPECT_THAT(adapted([](auto& o) {
                o.layers_to_transform = {0, 7};
              }),
              UnorderedElementsAre(first + "self_attn.q_proj", first + "mlp.down_proj"));
  EXPECT_THAT(adapted([](auto& o) {
                o.layers_to_transform = {1};
                o.layers_pattern = {"blocks", "layers"};
              }),
              UnorderedElementsAre(second + "self_attn.q_proj", second + "mlp.down_proj"));
  const auto text_of = [&](const std::function<void(LoraOptions&)>& change) -> std::string {
    try {
      adapted(change);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_THAT(text_of([](auto& o) {
                o.layers_to_transform = {1};
                o.layers_pattern = {"blocks"};
              }),
              HasSubstr("all target layers are excluded"));
  EXPECT_THAT(text_of([](auto& o) {
                o.target_modules.clear();
                o.target_regex = "foo.*";
                o.exclude_modules = {"q_proj"};
              }),
              HasSubstr("no linear layer of the model is named 'foo.*'"));
  EXPECT_THAT(text_of([](auto& o) {
                o.target_modules.clear();
                o.target_regex = ".*_proj";
                o.layers_to_transform = {1};
              }),
              HasSubstr("as a list"));
}

// An expression that means an embedding, or the head that shares its weight, is refused as their names are.
TEST(Lora, ExpressionsThatMeanTiedEmbeddingsAreErrors) {
  const auto model = models::small_model(/*tied=*/true, at::kFloat);
  std::vector<std::string> shared;
  for (const auto& [alias, owner] : model->tied_modules()) shared.insert(shared.end(), {alias, owner});
  const auto text_of = [&](const std::string& expression, const std::string& excluded = "") -> std::string {
    LoraOptions options;
    options.target_regex = expression;
    options.exclude_regex = excluded;
    try {
      find_lora_targets(*model, options, shared);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Config);
      return error.what();
    }
  };
  EXPECT_EQ(text_of(".*_proj"), "");
  EXPECT_THAT(text_of("lm_head|.*_proj"), HasSubstr("'lm_head', which cannot have an adapter: it shares"));
  EXPECT_THAT(text_of(".*(embed_tokens|q_proj)"),
              HasSubstr("'model.embed_tokens', which cannot have an adapter"));
  EXPECT_EQ(text_of(".*(embed_tokens|q_proj)", ".*embed.*"), "");
  EXPECT_EQ(text_of("model\\.layers\\.0\\..*"), "");
}

TEST(Lora, AllLinearUnitesWithNames) {
  for (const bool has_regex : {false, true}) {
    Model model;
    LoraOptions options = all_linear();
    if (has_regex) {
      options.target_regex = ".*1.q_proj";
    } else {
      options.target_modules = {"block1.q_proj"};
    }
    EXPECT_THAT(apply_lora(model, options).adapted,
                UnorderedElementsAre("block0.q_proj", "block0.up_proj", "block1.q_proj", "block1.up_proj"));
  }
}

TEST(Lora, WholeModulesStayTrained) {
  Model model;
  LoraOptions options = all_linear();
  options.modules_to_save = {"lm_head", "block0.q_proj"};
  const LoraTargets targets = apply_lora(model, options);
  EXPECT_THAT(targets.saved, UnorderedElementsAre("lm_head", "block0.q_proj"));
  EXPECT_THAT(targets.adapted, ::testing::Not(Contains("block0.q_proj")));
  const auto parameters = model.named_parameters();
  EXPECT_TRUE(parameters["lm_head.weight"].requires_grad());
  EXPECT_TRUE(parameters["block0.q_proj.bias"].requires_grad());
  EXPECT_FALSE(parameters["block1.q_proj.weight"].requires_grad());
}

TEST(Lora, NamesThatMeanNothingAreErrors) {
  LoraOptions options = all_linear();
  options.all_linear = false;
  EXPECT_THAT(error_of(options), HasSubstr("no layers to adapt"));
  options.target_modules = {"q_proj", "qqq_proj"};
  EXPECT_THAT(error_of(options), HasSubstr("'qqq_proj'"));
  EXPECT_THAT(error_of(options), HasSubstr("need q_proj, up_proj"));
  options.target_modules = {"proj"};
  EXPECT_THAT(error_of(options), HasSubstr("'proj'")) << "a part of a name is no match";
  options.target_modules = {"lm_head"};
  EXPECT_THAT(error_of(options), HasSubstr("is special"));
  options.target_modules.clear();
  options.target_regex = "q_proj";
  EXPECT_THAT(error_of(options), HasSubstr("no linear layer")) << "the expression must match the whole name";
  options.target_regex = "(q_proj";
  EXPECT_THAT(error_of(options), HasSubstr("bad regular expression"));
  options.target_modules = {"q_proj"};
  options.target_regex = ".*q_proj";
  EXPECT_THAT(error_of(options), HasSubstr("either a list or one expression"));
  options = all_linear();
  options.target_modules = {"q_proj", "nonesuch"};
  EXPECT_THAT(error_of(options), HasSubstr("'nonesuch'"));
  options = all_linear();
  options.modules_to_save = {"norm"};
  EXPECT_THAT(error_of(options), HasSubstr("'norm'"));
  options.modules_to_save = {"lm_head"};
  EXPECT_THAT(error_of(options, {"lm_head"}), HasSubstr("tied"));
  for (const auto& change : std::vector<std::function<void(LoraOptions&)>>{
           [](auto& o) { o.rank = 0; }, [](auto& o) { o.alpha = -1.0; }, [](auto& o) { o.dropout = 1.0; },
           [](auto& o) { o.dropout = std::nan(""); }}) {
    options = all_linear();
    change(options);
    EXPECT_NE(error_of(options), "");
  }
}

TEST(Lora, HostileExpressionsEnd) {
  const NamePattern pattern("(a+)+b");
  EXPECT_THROW(pattern.matches(std::string(64, 'a')), Error);
}

TEST(Lora, FactorsStartAsPefts) {
  Model model;
  apply_lora(model, all_linear());
  const checkpoint::RandomSource source(model, 0.02, 5);
  for (const auto& item : model.named_parameters()) {
    if (!is_lora_parameter(item.key())) continue;
    const at::Tensor value = at::empty(item.value().sizes(), at::kDouble);
    source.read(item.key(), checkpoint::whole_box(value.sizes().vec()), value);
    const double bound = 1.0 / std::sqrt(static_cast<double>(value.size(1)));
    const double largest = value.abs().max().item<double>();
    if (item.key().ends_with("lora_B.weight")) {
      EXPECT_EQ(largest, 0.0) << item.key();
    } else {
      EXPECT_LE(largest, bound) << item.key();
      EXPECT_GT(largest, bound / 2) << item.key();
    }
  }
}

}  // namespace
}  // namespace tessera::peft
