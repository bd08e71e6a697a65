#include "tessera/ops/lora.h"

#include <gtest/gtest.h>

#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

constexpr double kScaling = 1.7;

// Here `in` is x, weight, a, b, bias or undefined, mask or undefined.
at::Tensor fused_lora(const Inputs& in) {
  return lora_linear(in[0], in[1], in[4], in[2], in[3], kScaling, in[5]);
}
at::Tensor lora_by_formula(const Inputs& in) {
  at::Tensor base = at::matmul(in[0], in[1].t());
  if (in[4].defined()) base = base + in[4];
  const at::Tensor x = in[5].defined() ? in[0] * in[5] : in[0];
  return base + kScaling * at::matmul(at::matmul(x, in[2].t()), in[3].t());
}

Inputs make_lora_inputs(std::vector<int64_t> sizes, bool with_mask, uint64_t seed) {
  Inputs in = {random_tensor(sizes, seed),
               random_tensor({5, sizes.back()}, seed + 1),
               random_tensor({2, sizes.back()}, seed + 2),
               random_tensor({5, 2}, seed + 3),
               random_tensor({5}, seed + 4),
               at::Tensor()};
  if (with_mask) in[5] = random_tensor(sizes, seed + 5).gt(0).to(at::kDouble) * 2;
  return in;
}

TEST(LoraTest, GradientsMatchCentralDifferences) {
  for (const bool with_mask : {false, true}) {
    Inputs in = make_lora_inputs({2, 3, 4}, with_mask, 1);
    for (size_t i = 0; i < 5; ++i) in[i] = trained(in[i]);
    gradcheck(
        [&](const Inputs& five) {
          return fused_lora({five[0], five[1], five[2], five[3], five[4], in[5]});
        },
        {in[0], in[1], in[2], in[3], in[4]});
  }
}

TEST(LoraTest, EqualsTheFormulaForEverySubsetOfGradients) {
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{6, 7}, {1, 7}, {0, 7}, {2, 3, 7}}) {
    for (const bool with_mask : {false, true}) {
      SCOPED_TRACE(at::IntArrayRef(sizes));
      const Inputs in = make_lora_inputs(sizes, with_mask, 2);
      const at::Tensor mask = in[5];
      const auto with = [&](const auto& op, bool bias) {
        return [&op, mask, bias](const Inputs& some) {
          return op({some[0], some[1], some[2], some[3], bias ? some[4] : at::Tensor(), mask});
        };
      };
      expect_same_for_subsets(with(fused_lora, true), with(lora_by_formula, true),
                              {in[0], in[1], in[2], in[3], in[4]}, 5, 1e-12);
      expect_same_for_subsets(with(fused_lora, false), with(lora_by_formula, false),
                              {in[0], in[1], in[2], in[3]}, 4, 1e-12);
    }
  }
}

TEST(LoraTest, TakesInputsThatAreNotContiguous) {
  Inputs in = make_lora_inputs({3, 4, 7}, false, 3);
  const at::Tensor x = in[0], bias = in[4];
  for (const at::Tensor& laid_out : {with_gaps(x), transposed_in_memory(x)}) {
    const Inputs four = {trained(laid_out), trained(with_gaps(in[1])), trained(transposed_in_memory(in[2])),
                         trained(with_gaps(in[3]))};
    const auto with = [&](const auto& op) {
      return [&op, bias](const Inputs& some) {
        return op({some[0], some[1], some[2], some[3], bias, at::Tensor()});
      };
    };
    expect_same(with(fused_lora), with(lora_by_formula), four, 1e-12);
  }
}

TEST(LoraTest, Float32AndBfloat16AreNearFloat64) {
  const Inputs in = make_lora_inputs({33, 65}, true, 4);
  const Inputs all = {trained(in[0]), in[1], trained(in[2]), trained(in[3]), in[4], in[5]};
  expect_near_double(fused_lora, all, at::kFloat, 2e-6);
  expect_near_double(fused_lora, all, at::kBFloat16, 3e-2);
}

// If the base is frozen and there is no dropout, x is kept once for the adapter, and the base weight costs
// nothing but its alias.
TEST(LoraTest, BackwardReadsTheFrozenWeightWhereTheCallerKeepsIt) {
  const Inputs in = make_lora_inputs({4, 7}, false, 5);
  const at::Tensor x = trained(in[0]), weight = in[1], a = trained(in[2]),
                   b = trained(at::zeros({5, 2}, at::kDouble));
  const at::Tensor y = lora_linear(x, weight, std::nullopt, a, b, kScaling);
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    weight.fill_(3.0);
  }
  const auto grads = torch::autograd::grad({y}, {x, a, b}, {at::ones_like(y)});
  expect_near(grads[0], at::full({4, 7}, 15.0, at::kDouble), 1e-12, "gradient through the refilled weight");
}

TEST(LoraTest, AFrozenAdapterKeepsNoActivation) {
  const Inputs in = make_lora_inputs({4, 7}, false, 6);
  const at::Tensor leaf = trained(in[0]);
  at::Tensor x = leaf * 2;
  const at::Tensor y = lora_linear(x, in[1], std::nullopt, in[2], in[3], kScaling);
  c10::weak_intrusive_ptr<c10::StorageImpl> storage(x.storage().getWeakStorageImpl());
  x.reset();
  EXPECT_TRUE(storage.expired());
  EXPECT_TRUE(y.requires_grad());
}

}  // namespace
}  // namespace tessera::ops
