#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/core/memory_ledger.h"
#include "tessera/device/cpu_allocator.h"
#include "tessera/nn/call_hook.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/materialize.h"
#include "tessera/nn/mlp.h"
#include "tessera/nn/random_scope.h"
#include "tessera/nn/transformer_block.h"
#include "tessera/ops/rms_norm.h"

namespace tessera::nn {
namespace {

using ::testing::ElementsAre;

void fill(torch::nn::Module& module, uint64_t seed) {
  at::manual_seed(seed);
  for (auto& item : module.named_parameters()) {
    materialize(item.value(), at::randn(item.value().sizes(), item.value().scalar_type()));
  }
}

struct Doubling : LinearAdapter {
  Doubling() { register_module("child", std::make_shared<Linear>(2, 2, false, at::kDouble)); }
  at::Tensor forward(const ops::Activation& x, const ops::Weight& weight, const std::optional<at::Tensor>&,
                     const c10::intrusive_ptr<ops::RowExchange>&) override {
    return 2.0 * at::matmul(x.value(), weight.values().t());
  }
  std::vector<AdapterParameter> adapter_parameters() const override { return {}; }
  void set_input_part(int64_t, int64_t, const ops::ChangeInPlace&) override {}
};

TEST(Linear, ParametersAreMadeOnMeta) {
  Linear layer(3, 5, true, at::kBFloat16);
  EXPECT_TRUE(layer.weight.is_meta());
  EXPECT_TRUE(layer.weight.requires_grad());
  EXPECT_EQ(layer.weight.scalar_type(), at::kBFloat16);
  EXPECT_THAT(layer.weight.sizes(), ElementsAre(5, 3));
  EXPECT_THAT(layer.bias.sizes(), ElementsAre(5));
}

TEST(Linear, AnAdapterTakesOverAndItsChildrenBecomeTheLayers) {
  Linear layer(2, 2, false, at::kDouble);
  fill(layer, 1);
  const at::Tensor x = at::randn({3, 2}, at::kDouble);
  const at::Tensor plain = layer.forward(x);
  layer.set_adapter(std::make_shared<Doubling>(), "x.layer");
  EXPECT_TRUE(at::allclose(layer.forward(x), 2.0 * plain, 1e-12, 1e-12));
  EXPECT_TRUE(layer.named_parameters().contains("child.weight"));
}

TEST(Linear, RefusesAnAdapterByName) {
  Linear layer(2, 2, false, at::kDouble);
  layer.refuse_adapter("is special");
  try {
    layer.set_adapter(std::make_shared<Doubling>(), "x.layer");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-CONFIG-ADAPTER-TARGET");
    EXPECT_THAT(error.what(), ::testing::HasSubstr("'x.layer'"));
  }
}

// A hook that keeps the forward for later.
struct Recorder : CallHook {
  at::Tensor run(const at::Tensor& input, const Forward& next) override {
    kept = next;
    seen = input;
    return next(input);
  }
  Forward kept;
  at::Tensor seen;
};

TEST(CallHook, TheForwardCanRunAgainAfterTheCall) {
  TransformerBlockOptions options;
  options.attention = {.hidden_size = 8, .num_heads = 2, .num_kv_heads = 1, .head_dim = 4};
  options.mlp = {.hidden_size = 8, .intermediate_size = 6};
  TransformerBlock block(options, 0, at::kDouble);
  fill(block, 2);
  const auto hook = std::make_shared<Recorder>();
  add_call_hook(block, hook);
  at::Tensor first;
  {
    // All arguments of the call are gone when the kept forward runs.
    SequenceContext context{
        {0, 2, 5}, nullptr, {{at::randn({5, 2}, at::kDouble), at::randn({5, 2}, at::kDouble)}}};
    first = call(block, at::randn({5, 8}, at::kDouble), context);
  }
  EXPECT_TRUE(at::equal(hook->kept(hook->seen), first));
}

struct Narrowing : CallHook {
  at::Tensor run(const at::Tensor& input, const Forward& next) override { return next(input); }
  std::optional<at::ScalarType> input_type() const override { return at::kBFloat16; }
};

// A module that notes the arguments of its forward.
struct Receiver : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& mask,
                     const std::optional<at::Tensor>& none, const std::vector<at::Tensor>& list) {
    got = {x, *mask};
    got.insert(got.end(), list.begin(), list.end());
    EXPECT_FALSE(none.has_value());
    return x;
  }
  std::vector<at::Tensor> got;
};

TEST(CallHook, TensorsInAnOptionalOrAVectorAreCastToo) {
  Receiver module;
  add_call_hook(module, std::make_shared<Narrowing>());
  const std::optional<at::Tensor> mask = at::ones({2}), none;
  call(module, at::ones({2}), mask, none,
       std::vector<at::Tensor>{at::ones({2}), at::ones({2}, at::kLong), at::Tensor()});
  ASSERT_EQ(module.got.size(), 5U);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(module.got[i].scalar_type(), at::kBFloat16) << i;
  EXPECT_EQ(module.got[3].scalar_type(), at::kLong);
  EXPECT_FALSE(module.got[4].defined());
}

// Recompute keeps less and changes nothing else, whether x has a source or not, and for few rows too.
class MLPTest : public ::testing::TestWithParam<bool> {};  // the parameter says whether the MLP is gated

TEST_P(MLPTest, HiddenValuesMayBeComputedAgain) {
  constexpr int64_t kHidden = 24, kInner = 64;
  install_cpu_allocator();  // counts allocations
  MLPOptions options{.hidden_size = kHidden, .intermediate_size = kInner, .bias = true};
  if (!GetParam()) {
    options.activation = ops::Nonlinearity::GeluTanh;
    options.gate.clear();
  }
  MLP keeping(options, at::kBFloat16), computing(options, at::kBFloat16);
  fill(keeping, 5);
  fill(computing, 5);
  computing.recompute_hidden();
  const at::Tensor weight = at::ones({kHidden}, at::kBFloat16);
  for (const auto& [rows, has_source] :
       std::vector<std::pair<int64_t, bool>>{{40, false}, {40, true}, {8, false}, {8, true}}) {
    const auto run = [&](MLP& mlp) {
      mlp.zero_grad();
      at::manual_seed(1);
      const at::Tensor x = at::randn({rows, kHidden}, at::kBFloat16).set_requires_grad(true);
      memory_ledger::start();
      const at::Tensor y = mlp.forward(has_source ? ops::add_rms_norm(x, std::nullopt, weight, 1e-5).normed
                                                  : ops::Activation(x));
      const int64_t kept = memory_ledger::live().total();
      memory_ledger::stop();
      y.sin().sum().backward();
      std::vector<at::Tensor> results = {y.detach(), x.grad()};
      for (const at::Tensor& parameter : mlp.parameters()) results.push_back(parameter.grad().clone());
      return std::pair(kept, results);
    };
    const auto [more, want] = run(keeping);
    const auto [less, got] = run(computing);
    EXPECT_GE(more - less, (GetParam() ? 2 : 1) * rows * kInner * int64_t{2});
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(at::equal(got[i], want[i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(GatedOrNot, MLPTest, ::testing::Bool());

TEST(ForwardOnlyScope, TheInnermostCounts) {
  const at::Tensor a = at::ones({2}), b = at::ones({2});
  EXPECT_FALSE(ForwardOnlyScope::names(a));
  const ForwardOnlyScope outer({a});
  EXPECT_TRUE(ForwardOnlyScope::names(a));
  EXPECT_FALSE(ForwardOnlyScope::names(b));
  {
    const ForwardOnlyScope inner({b});
    EXPECT_FALSE(ForwardOnlyScope::names(a));
    EXPECT_TRUE(ForwardOnlyScope::names(b));
  }
  EXPECT_TRUE(ForwardOnlyScope::names(a));
}

TEST(RandomScope, MasksAreAFunctionOfPlace) {
  const at::Tensor x = at::zeros({40, 8});
  const auto mask = [&](RandomPlace place, uint64_t stream) {
    RandomScope scope(place);
    return dropout_mask_here(x, 0.25, stream);
  };
  const at::Tensor reference = mask({1, 2, 3}, 4);
  EXPECT_TRUE(at::equal(mask({1, 2, 3}, 4), reference));
  EXPECT_FALSE(at::equal(mask({9, 2, 3}, 4), reference));
  EXPECT_FALSE(at::equal(mask({1, 9, 3}, 4), reference));
  EXPECT_FALSE(at::equal(mask({1, 2, 9}, 4), reference));
  EXPECT_FALSE(at::equal(mask({1, 2, 3}, 9), reference));
  const double kept = reference.gt(0).to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(kept, 0.75, 0.1);
  EXPECT_FLOAT_EQ(reference.max().item<float>(), 1.0F / 0.75F);
}

TEST(RandomScope, NestsAndIsNeeded) {
  EXPECT_EQ(RandomScope::current(), nullptr);
  {
    RandomScope outer({1, 0, 0});
    {
      RandomScope inner({2, 0, 0});
      EXPECT_EQ(RandomScope::current()->seed, 2U);
    }
    EXPECT_EQ(RandomScope::current()->seed, 1U);
  }
  EXPECT_EQ(RandomScope::current(), nullptr);
  EXPECT_THROW(dropout_mask_here(at::zeros({2}), 0.5, 1), Error);
}

}  // namespace
}  // namespace tessera::nn
