#include "tessera/nn/grouped_experts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/nn/materialize.h"
#include "tessera/ops/cuda/aten_leaves.h"
#include "tessera/ops/direct_gradient.h"
#include "tessera/ops/grouped_linear.h"
#include "tessera/ops/leaf.h"

#include "tests/testing/fake_device.h"
#include "tests/testing/random.h"

namespace tessera::nn {
namespace {

namespace fake = testing::fake_device;

constexpr int64_t kExperts = 5, kHidden = 16, kIntermediate = 24;

MLPOptions options_of(bool has_gate) {
  MLPOptions options{.hidden_size = kHidden, .intermediate_size = kIntermediate};
  if (!has_gate) options.gate = "";
  return options;
}

void fill(torch::nn::Module& module) {
  int64_t number = 0;
  for (auto& entry : module.named_parameters()) {
    at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(++number));
    materialize(entry.value(), at::randn(entry.value().sizes(), generator, at::kFloat).to(at::kBFloat16));
  }
}

Experts make_experts(bool has_gate, at::ScalarType type = at::kBFloat16) {
  torch::nn::Module root;
  Experts experts;
  for (int64_t e = 0; e < kExperts; ++e) {
    experts.push_back(std::make_shared<MLP>(options_of(has_gate), type));
    root.register_module(std::to_string(e), experts.back());
  }
  fill(root);
  return experts;
}

struct Result {
  at::Tensor y, grad_x;
  std::vector<at::Tensor> grads;
};

enum class Way { OneByOne, Grouped };

Result run(const Experts& experts, const std::vector<int64_t>& counts, Way way) {
  const at::Tensor ends = at::tensor(counts).cumsum(0, at::kInt);
  at::Generator generator = at::detail::createCPUGenerator(99);
  const at::Tensor rows = at::randn({ends[-1].item<int64_t>(), kHidden}, generator, at::kFloat)
                              .to(at::kBFloat16)
                              .set_requires_grad(true);
  const at::Tensor y =
      way == Way::Grouped ? run_grouped(rows, ends, experts) : run_experts(rows, counts, experts);
  (y * y.detach()).sum().backward();
  Result result{y.detach(), rows.grad(), {}};
  for (const auto& expert : experts) {
    for (const at::Tensor& parameter : expert->parameters()) {
      result.grads.push_back(parameter.grad().defined() ? parameter.grad().to(at::kFloat, false, true)
                                                        : at::zeros(parameter.sizes(), at::kFloat));
      at::Tensor(parameter).mutable_grad().reset();
    }
  }
  return result;
}

void expect_close(const at::Tensor& got, const at::Tensor& want, const char* what) {
  const double error = (got.to(at::kDouble) - want.to(at::kDouble)).norm().item<double>();
  EXPECT_LE(error, 1e-2 * want.to(at::kDouble).norm().item<double>()) << what;
}

TEST(GroupedExperts, AreTheExpertsOneByOne) {
  testing::Random random;
  const ops::LeavesScope scope(&ops::cuda::aten_leaves());
  for (const bool has_gate : {true, false}) {
    for (const bool recomputes : {false, true}) {
      for (const bool is_direct : {false, true}) {
        for (const int64_t most : {1, 7, 60}) {
          std::vector<int64_t> counts;
          for (int64_t e = 0; e < kExperts; ++e) counts.push_back(random.in(0, most));
          counts[static_cast<size_t>(random.in(0, kExperts - 1))] += 1;
          const Experts experts = make_experts(has_gate);
          for (const auto& expert : experts) {
            if (recomputes) expert->recompute_hidden();
            for (const at::Tensor& parameter : expert->parameters()) {
              if (is_direct) ops::accumulate_directly(parameter, at::kFloat);
            }
          }
          const Result want = run(experts, counts, Way::OneByOne), got = run(experts, counts, Way::Grouped);
          EXPECT_TRUE(at::equal(got.y, want.y));
          expect_close(got.grad_x, want.grad_x, "rows");
          ASSERT_EQ(got.grads.size(), want.grads.size());
          for (size_t i = 0; i < want.grads.size(); ++i) expect_close(got.grads[i], want.grads[i], "weight");
        }
      }
    }
  }
}

TEST(GroupedExperts, DirectGradientsAddUpOverCalls) {
  const ops::LeavesScope scope(&ops::cuda::aten_leaves());
  const Experts experts = make_experts(true);
  const at::Tensor weight = experts[0]->up_proj->weight;
  ops::accumulate_directly(weight, at::kFloat);
  const at::Tensor rows = at::ones({kExperts, kHidden}, at::kBFloat16),
                   ends = at::arange(1, kExperts + 1, at::kInt);
  run_grouped(rows, ends, experts).sum().backward();
  const at::Tensor once = weight.grad().clone();
  ASSERT_EQ(once.scalar_type(), at::kFloat);
  EXPECT_GT(once.abs().max().item<double>(), 0.0);
  run_grouped(rows, ends, experts).sum().backward();
  EXPECT_TRUE(at::equal(weight.grad(), 2 * once));
}

TEST(GroupedExperts, AreThoseOfManyRowsThatNothingElseChanges) {
  const Experts experts = make_experts(true);
  const at::Tensor rows = at::ones({16 * kExperts, kHidden}, at::kBFloat16);
  EXPECT_FALSE(runs_grouped(rows, experts)) << "the host's table has no groups";
  const ops::LeavesScope scope(&ops::cuda::aten_leaves());
  EXPECT_TRUE(runs_grouped(rows, experts));
  EXPECT_FALSE(runs_grouped(rows.narrow(0, 0, rows.size(0) - 1), experts));
  EXPECT_FALSE(runs_grouped(rows.to(at::kFloat), experts));
  const Experts in_fp8 = make_experts(true), with_parallel = make_experts(true);
  in_fp8[1]->down_proj->set_product_type(ops::ProductType::E4m3);
  EXPECT_FALSE(runs_grouped(rows, in_fp8));
  with_parallel[2]->up_proj->set_parallel(std::make_shared<LayerParallel>());
  EXPECT_FALSE(runs_grouped(rows, with_parallel));
  with_parallel[2]->up_proj->set_parallel(nullptr);
  EXPECT_TRUE(runs_grouped(rows, with_parallel));
  with_parallel[2]->set_parallel(std::make_shared<LayerParallel>());
  EXPECT_FALSE(runs_grouped(rows, with_parallel));
}

// Returns experts whose weights lie as in a loaded model: those of one expert after those of the other.
Experts experts_in_line(const Experts& from) {
  std::vector<at::Tensor> flat;
  for (const auto& expert : from) {
    for (const at::Tensor& parameter : expert->parameters()) flat.push_back(parameter.detach().flatten());
  }
  const at::Tensor all = at::cat(flat);
  Experts experts = make_experts(from.front()->gate_proj != nullptr);
  int64_t begin = 0;
  for (const auto& expert : experts) {
    for (auto& entry : expert->named_parameters()) {
      const int64_t size = entry.value().numel();
      materialize(entry.value(), all.narrow(0, begin, size).view(entry.value().sizes()));
      begin += size;
    }
  }
  return experts;
}

TEST(GroupedExperts, WhoseWeightsLieInLineAreReadThere) {
  static std::vector<const void*> read;
  const ops::LeavesScope scope(&ops::cuda::aten_leaves());
  const Experts copied = make_experts(true), in_line = experts_in_line(copied);
  const at::Tensor rows = at::ones({3, kHidden}, at::kBFloat16);
  EXPECT_FALSE(runs_grouped(rows, copied));
  EXPECT_TRUE(runs_grouped(rows, in_line)) << "however few rows";
  const std::vector<int64_t> counts = {0, 2, 0, 7, 1};
  const Result want = run(copied, counts, Way::OneByOne), got = run(in_line, counts, Way::Grouped);
  EXPECT_TRUE(at::equal(got.y, want.y));
  expect_close(got.grad_x, want.grad_x, "rows");
  for (size_t i = 0; i < want.grads.size(); ++i) expect_close(got.grads[i], want.grads[i], "weight");
  // The grouped product gets the weights themselves, not a copy.
  ops::Leaves table = ops::cuda::aten_leaves();
  table.grouped_product = [](const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends) {
    read.push_back(b.const_data_ptr());
    return ops::cuda::aten_leaves().grouped_product(a, b, ends);
  };
  const ops::LeavesScope own(&table);
  const at::NoGradGuard no_grad;
  const at::Tensor ends = at::tensor({1, 1, 2, 3, 3}, at::kInt);
  run_grouped(rows, ends, in_line);
  const MLP& first = *in_line.front();
  EXPECT_EQ(read, (std::vector<const void*>{first.gate_proj->weight.const_data_ptr(),
                                            first.up_proj->weight.const_data_ptr(),
                                            first.down_proj->weight.const_data_ptr()}));
}

TEST(GroupedExperts, LieInLineAtEqualDistancesAlone) {
  const at::Tensor all = at::zeros({400}, at::kBFloat16);
  const auto weight = [&](int64_t begin) { return all.narrow(0, begin, 64).view({8, 8}); };
  EXPECT_TRUE(ops::lie_in_line({weight(0), weight(72), weight(144)}));
  EXPECT_TRUE(ops::lie_in_line({weight(8)}));
  EXPECT_FALSE(ops::lie_in_line({weight(0), weight(72), weight(152)})) << "other distances";
  EXPECT_FALSE(ops::lie_in_line({weight(0), weight(68), weight(136)})) << "not aligned";
  EXPECT_FALSE(ops::lie_in_line({weight(4), weight(76)})) << "nor is the first";
  EXPECT_FALSE(ops::lie_in_line({weight(72), weight(0)})) << "backwards";
  EXPECT_FALSE(ops::lie_in_line({weight(0), weight(32)})) << "one over the other";
  EXPECT_FALSE(ops::lie_in_line({weight(0), weight(64).clone()})) << "elsewhere";
  EXPECT_FALSE(ops::lie_in_line({weight(0), weight(64).t()})) << "turned";
}

// The device counts how often the host waits.
TEST(GroupedExperts, NobodyWaitsToKnowHowManyRowsTheyHave) {
  static int products;
  products = 0;
  ops::Leaves table = ops::plain_leaves();
  table.grouped_product = [](const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends) {
    ++products;
    return b.dim() == 3 ? at::zeros({a.size(0), b.size(2)}, a.options())
                        : at::zeros({ends.size(0), a.size(0), b.size(1)}, a.options());
  };
  const ops::LeavesScope scope(&table);
  SparseMLP mlp({.num_experts = kExperts, .experts_per_token = 2, .expert = options_of(true)}, at::kBFloat16);
  for (auto& entry : mlp.named_parameters())
    materialize(entry.value(), at::ones(entry.value().sizes(), at::kBFloat16).to(fake::device(0)));
  // Returns how often the host waits in a forward and backward.
  const auto waits_of = [&](int64_t tokens) {
    const at::Tensor x =
        at::ones({tokens, kHidden}, at::kBFloat16).to(fake::device(0)).set_requires_grad(true);
    fake::synchronize();
    const int64_t before = fake::waits();
    const at::Tensor y = mlp.forward(x, {});
    y.backward(at::ones_like(y));
    const int64_t waits = fake::waits() - before;
    fake::synchronize();
    return waits;
  };
  EXPECT_EQ(waits_of(8 * kExperts), 0);
  EXPECT_EQ(products, 3 * 3);
  EXPECT_GT(waits_of(8 * kExperts - 1), 0) << "fewer rows are counted";
  EXPECT_EQ(products, 3 * 3);
  EXPECT_EQ(fake::fault(), "");
}

}  // namespace
}  // namespace tessera::nn
