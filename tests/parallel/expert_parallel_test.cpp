#include "tessera/parallel/expert_parallel/expert_parallel.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/comm/fake/fake_backend.h"
#include "tessera/core/rng.h"
#include "tessera/nn/materialize.h"
#include "tessera/nn/sparse_mlp.h"
#include "tessera/parallel/expert_parallel/expert_dispatch.h"

#include "tests/testing/random.h"

namespace tessera::parallel {
namespace {

constexpr int64_t kExperts = 5, kHidden = 3;

at::Tensor numbers(std::vector<int64_t> shape, const std::string& name) {
  const CounterRng rng(3, stream_of(name.c_str()));
  const at::Tensor values = at::empty(shape, at::kDouble);
  for (int64_t i = 0; i < values.numel(); ++i)
    values.mutable_data_ptr<double>()[i] = rng.normal(static_cast<uint64_t>(i));
  return values;
}

nn::Experts make_experts() {
  nn::Experts experts;
  for (int64_t e = 0; e < kExperts; ++e) {
    experts.push_back(std::make_shared<nn::MLP>(
        nn::MLPOptions{.hidden_size = kHidden, .intermediate_size = 4}, at::kDouble));
    for (auto& entry : experts.back()->named_parameters()) {
      nn::materialize(entry.value(), numbers(entry.value().sizes().vec(), std::to_string(e) + entry.key()));
    }
  }
  return experts;
}

using Counts = std::vector<int64_t>;

int64_t total(const Counts& counts) {
  int64_t sum = 0;
  for (const int64_t count : counts) sum += count;
  return sum;
}

at::Tensor rows_of(int64_t rank, const Counts& counts) {
  return numbers({total(counts), kHidden}, "rows" + std::to_string(rank)).set_requires_grad(true);
}

// Compares results and gradients of rows that are sent to experts on other ranks with those of all experts
// in one process. Rank r sends counts[r][e] rows to expert e.
void check(const std::vector<Counts>& counts) {
  const int64_t ranks = std::ssize(counts);
  std::vector<at::Tensor> want, want_gradients;
  const nn::Experts all = make_experts();
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const at::Tensor rows = rows_of(rank, counts[static_cast<size_t>(rank)]);
    const at::Tensor result = nn::run_experts(rows, counts[static_cast<size_t>(rank)], all);
    result.square().sum().backward();
    want.push_back(result.detach());
    want_gradients.push_back(rows.grad());
  }
  comm::run_fake_ranks(ranks, [&](const auto& world) {
    const auto rank = static_cast<size_t>(world->rank());
    const nn::Experts experts = make_experts();
    const at::Tensor rows = rows_of(world->rank(), counts[rank]);
    const at::Tensor result =
        ExpertDispatch(world).run(rows, at::tensor(counts[rank]).cumsum(0, at::kInt), experts);
    result.square().sum().backward();
    EXPECT_TRUE(at::allclose(result, want[rank], 1e-12, 1e-12));
    EXPECT_TRUE(at::allclose(rows.grad(), want_gradients[rank], 1e-12, 1e-12));
    const auto [first, count] = piece_of(kExperts, ranks, world->rank());
    for (int64_t e = 0; e < kExperts; ++e) {
      for (const char* name : {"gate_proj.weight", "up_proj.weight", "down_proj.weight"}) {
        const at::Tensor got = experts[static_cast<size_t>(e)]->named_parameters()[name].grad();
        const at::Tensor sum = all[static_cast<size_t>(e)]->named_parameters()[name].grad();
        const bool is_here = e >= first && e < first + count;
        EXPECT_EQ(got.defined(), is_here) << "zeros where no row came";
        if (!is_here) continue;
        EXPECT_TRUE(at::allclose(got, sum, 1e-12, 1e-12)) << e << name;
      }
    }
  });
}

TEST(ExpertParallelTest, RowsOfAnyNumberComeBackWithTheirGradients) {
  testing::Random random;
  for (const int64_t ranks : {1, 2, 3, 5}) {
    for (const int64_t most : {0, 1, 4}) {
      std::vector<Counts> counts(static_cast<size_t>(ranks));
      for (Counts& own : counts) {
        for (int64_t e = 0; e < kExperts; ++e) own.push_back(random.in(0, most));
      }
      check(counts);
    }
    // One rank sends all of its rows to one expert, and the others send none.
    std::vector<Counts> one(static_cast<size_t>(ranks), Counts(kExperts, 0));
    one.back()[static_cast<size_t>(random.in(0, kExperts - 1))] = 7;
    check(one);
  }
}

struct Root : torch::nn::Module {
  Root() {
    const nn::SparseMLPOptions options = {.num_experts = kExperts,
                                          .experts_per_token = 2,
                                          .expert = {.hidden_size = kHidden, .intermediate_size = 4}};
    mlp = register_module("mlp", std::make_shared<nn::SparseMLP>(options, at::kFloat));
  }
  std::shared_ptr<nn::SparseMLP> mlp;
};

TEST(ExpertParallelTest, AnExpertIsHeldByOneRankAndSpreadOverItsOwnGroup) {
  comm::run_fake_ranks(3, [](const auto& world) {
    Root root;
    ParameterLayouts layouts;
    const ShardGroups groups{comm::Communicator::single()};
    expert_parallel(root, {"ep", world}, groups, layouts);
    for (int64_t e = 0; e < kExperts; ++e) {
      const int64_t holder = e < 2 ? 0 : e < 4 ? 1 : 2;
      const at::Tensor& weight = root.mlp->experts[static_cast<size_t>(e)]->up_proj->weight;
      EXPECT_EQ(weight.size(0), world->rank() == holder ? 4 : 0);
      EXPECT_EQ(layouts.of(weight).shape(), (std::vector<int64_t>{4, kHidden}));
      EXPECT_EQ(layouts.of(weight).axes()[0].placement, Placement::held_by({holder}));
      EXPECT_FALSE(layouts.of(weight).axes()[0].sums_gradient) << "they are sums already";
      ASSERT_NE(layouts.groups_of(weight), nullptr);
      EXPECT_EQ(layouts.groups_of(weight)->shard, groups.shard);
    }
    EXPECT_EQ(layouts.groups_of(root.mlp->gate->weight), nullptr);
    EXPECT_TRUE(layouts.axes_of(root.mlp->gate->weight).empty());
  });
}

}  // namespace
}  // namespace tessera::parallel
