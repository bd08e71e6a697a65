#include "tessera/parallel/tensor_parallel/tensor_parallel.h"

#include <chrono>
#include <thread>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/comm/fake/fake_backend.h"
#include "tessera/core/error.h"
#include "tessera/nn/embedding.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/materialize.h"
#include "tessera/nn/rms_norm.h"
#include "tessera/parallel/tensor_parallel/token_exchange.h"

#include "tests/testing/gradcheck.h"

namespace tessera::parallel {
namespace {

struct Net : torch::nn::Module {
  Net() {
    table = register_module("table", std::make_shared<nn::Embedding>(7, 4, at::kDouble));
    in = register_module("in", std::make_shared<nn::Linear>(4, 6, true, at::kDouble));
    out = register_module("out", std::make_shared<nn::Linear>(6, 4, true, at::kDouble));
    norm = register_module("norm", std::make_shared<nn::RMSNorm>(4, 1e-6, at::kDouble));
  }
  std::shared_ptr<nn::Embedding> table;
  std::shared_ptr<nn::Linear> in, out;
  std::shared_ptr<nn::RMSNorm> norm;
};

const TensorParallelPlan kPlan = {.layers = {{"table", LayerStyle::vocabulary()},
                                             {"in", LayerStyle::colwise(2)},
                                             {"out", LayerStyle::rowwise(2)}}};

TEST(TensorParallelTest, EveryCutParameterHasOneLayoutWhateverCutsIt) {
  comm::run_fake_ranks(2, [](const auto& world) {
    Net net;
    const ParameterLayouts layouts = tensor_parallel(net, kPlan, {"tp", world});
    const bool is_first = world->rank() == 0;
    EXPECT_EQ(net.table->weight.sizes(), (std::vector<int64_t>{is_first ? 4 : 3, 4}));
    EXPECT_EQ(net.in->weight.sizes(), (std::vector<int64_t>{is_first ? 4 : 2, 4}));
    EXPECT_EQ(net.in->bias.sizes(), (std::vector<int64_t>{is_first ? 4 : 2}));
    EXPECT_EQ(net.out->weight.sizes(), (std::vector<int64_t>{4, is_first ? 4 : 2}));
    EXPECT_EQ(net.out->bias.sizes(), (std::vector<int64_t>{4}));
    EXPECT_EQ(layouts.of(net.out->weight).shape(), (std::vector<int64_t>{4, 6}));
    EXPECT_EQ(layouts.of(net.out->weight).local_box({1}), (Box{{0, 4}, {4, 2}}));
    EXPECT_EQ(layouts.of(net.out->bias).axes()[0].placement, Placement::replicate());
    EXPECT_FALSE(layouts.of(net.norm->weight).axes()[0].sums_gradient);
  });
}

TEST(TensorParallelTest, SequenceParallelismSumsGradientsOfWhatSeesAPartOfTheTokens) {
  comm::run_fake_ranks(3, [](const auto& world) {
    Net net;
    TensorParallelPlan plan = kPlan;
    plan.layers.emplace_back("norm", LayerStyle::per_token());
    const ParameterLayouts layouts = tensor_parallel(net, plan, {"tp", world}, {.sequence_parallel = true});
    for (const at::Tensor& parameter : {net.norm->weight, net.out->bias}) {
      EXPECT_EQ(layouts.of(parameter).axes()[0].placement, Placement::replicate());
      EXPECT_TRUE(layouts.of(parameter).axes()[0].sums_gradient);
    }
    EXPECT_FALSE(layouts.of(net.out->weight).axes()[0].sums_gradient);
  });
}

TEST(TensorParallelTest, SequenceParallelismNeedsEqualPartsOfABatch) {
  comm::run_fake_ranks(2, [](const auto& world) {
    Net net;
    tensor_parallel(net, kPlan, {"tp", world}, {.sequence_parallel = true});
    nn::materialize(net.table->weight, at::ones(net.table->weight.sizes(), at::kDouble));
    EXPECT_EQ(net.table->forward(at::zeros({4}, at::kLong)).sizes(), (std::vector<int64_t>{2, 4}));
    try {
      net.table->forward(at::zeros({5}, at::kLong));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("got 5 tokens, need a multiple of 2"));
    }
  });
}

// Two key/value heads lie over four ranks: a second axis cuts their queries and shares their keys.
TEST(TensorParallelTest, MoreRanksThanSharedPartsAreTwoAxes) {
  comm::run_fake_ranks(4, [](const auto& world) {
    Net net;
    TensorParallelPlan plan = kPlan;
    plan.most_shared_parts = 2;
    plan.layers = {{"in", LayerStyle::shared_colwise(3)}, {"out", LayerStyle::rowwise(3, 1)}};
    const ParameterLayouts layouts = tensor_parallel(net, plan, {"tp", world});
    ASSERT_EQ(layouts.axes().size(), 2U);
    const int64_t part = world->rank() / 2, copy = world->rank() % 2;
    EXPECT_EQ(coordinates_on(layouts.axes()), (std::vector<int64_t>{part, copy}));
    const Layout in = layouts.of(net.in->weight), out = layouts.of(net.out->weight);
    EXPECT_EQ(in.local_box({part, copy}), (Box{{3 * part, 0}, {3, 4}}));
    EXPECT_FALSE(in.axes()[0].sums_gradient);
    EXPECT_TRUE(in.axes()[1].sums_gradient);
    EXPECT_EQ(in.num_replicas(), 2);
    EXPECT_EQ(out.local_box({part, copy}), (Box{{0, 3 * part + 2 * copy}, {4, copy == 0 ? 2 : 1}}));
    EXPECT_FALSE(out.axes()[1].sums_gradient);
  });
}

TEST(TensorParallelTest, AxesAreAsManyAsThePlanNeeds) {
  const TensorParallelPlan any, three{.layers = {}, .most_shared_parts = 3};
  EXPECT_EQ(tensor_parallel_axes(any, 8), (std::vector<int64_t>{8}));
  EXPECT_EQ(tensor_parallel_axes(three, 2), (std::vector<int64_t>{2}));
  EXPECT_EQ(tensor_parallel_axes(three, 6), (std::vector<int64_t>{3, 2}));
  try {
    tensor_parallel_axes(three, 4);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("E-CONFIG-TENSOR-PARALLEL"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("at most 3 ranks, or a multiple of it"));
  }
}

TEST(TensorParallelTest, RefusesMoreRanksThanUnitsAndUnknownLayers) {
  const Net net;
  const auto message_of = [&](const TensorParallelPlan& plan, int64_t ranks) {
    try {
      check_tensor_parallel(net, plan, ranks);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message_of(kPlan, 3), "");
  EXPECT_THAT(message_of(kPlan, 4), ::testing::HasSubstr("E-CONFIG-TENSOR-PARALLEL"));
  EXPECT_THAT(message_of(kPlan, 4),
              ::testing::HasSubstr("'in' cannot be cut over 4 ranks; got 3 parts of 2"));
  EXPECT_THAT(message_of(kPlan, 4), ::testing::EndsWith("hint: tensor_parallel_size: 3"));
  // The plan has two key/value heads, each with three query heads.
  TensorParallelPlan copies = {.layers = {{"in", LayerStyle::colwise(3, 1)}}, .most_shared_parts = 2};
  EXPECT_EQ(message_of(copies, 6), "");
  EXPECT_THAT(message_of(copies, 5), ::testing::HasSubstr("2 key/value heads"));
  EXPECT_THAT(message_of(copies, 5), ::testing::EndsWith("hint: the nearest valid sizes are 4 and 6"));
  EXPECT_THAT(message_of(copies, 7), ::testing::EndsWith("hint: tensor_parallel_size: 6"));
  EXPECT_THAT(message_of(copies, 8),
              ::testing::HasSubstr("got 3 elements in each of the 2 parts that key/value heads make, need at "
                                   "least 4. hint: tensor_parallel_size: 6"));
  EXPECT_THAT(message_of({{{"inn", LayerStyle::colwise()}}}, 2), ::testing::HasSubstr("E-CONFIG-LAYER"));
}

// Checks that every rank gets all logits, and that their gradient goes back to the parts.
void check_logits(int64_t ranks) {
  comm::run_fake_ranks(ranks, [&](const auto& world) {
    const at::Tensor whole = at::arange(28, at::kDouble).view({7, 4}) * 0.1;
    const at::Tensor x = at::tensor({0.5, -1.0, 2.0, 0.25, 1.0, 0.5, -0.5, 1.5}, at::kDouble).view({2, 4});
    auto norm = std::make_shared<nn::RMSNorm>(4, 1e-6, at::kDouble);
    nn::materialize(norm->weight, at::ones({4}, at::kDouble));
    struct Head : torch::nn::Module {
      std::shared_ptr<nn::Linear> linear =
          register_module("linear", std::make_shared<nn::Linear>(4, 7, false, at::kDouble));
    };
    const auto run = [&](const std::shared_ptr<comm::Communicator>& group) {
      Head model;
      nn::OutputHead head(norm, model.linear);
      const ParameterLayouts layouts =
          tensor_parallel(model, {{{"linear", LayerStyle::vocabulary()}}}, {"tp", group});
      const Box box = layouts.of(model.linear->weight).local_box({group->rank()});
      nn::materialize(model.linear->weight, whole.narrow(0, box.offset[0], box.size[0]).clone());
      if (group->size() > 1) tensor_parallel_head(head, layouts, {"tp", group});
      const at::Tensor in = x.clone().set_requires_grad(true);
      const at::Tensor logits = head.logits(in);
      (logits * at::arange(14, at::kDouble).view({2, 7})).sum().backward();
      nn::TokenBatch batch;
      batch.labels = at::tensor({6, 2}, at::kLong);
      const at::Tensor loss = head.loss(x, batch);
      return std::vector<at::Tensor>{logits, in.grad(), loss};
    };
    const auto want = run(comm::Communicator::single()), got = run(world);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_TRUE(at::allclose(got[i], want[i], 1e-12, 1e-12)) << i << "\n" << got[i] << "\n" << want[i];
    }
  });
}

TEST(TensorParallelTest, TwoRanksGatherLogits) { check_logits(2); }
TEST(TensorParallelTest, ThreeRanksGatherLogits) { check_logits(3); }

// Checks that the exchange gives the collectives' numbers to the last bit, whichever rank comes late.
void check_token_exchange(int64_t ranks) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (int64_t late = 0; late <= ranks; ++late) {
      comm::run_fake_ranks(ranks, [&](const auto& world) {
        const auto exchange = c10::make_intrusive<detail::TokenExchange>(world, "tokens");
        const auto numbers = [&](int64_t rows, uint64_t stream) {
          return checks::random_tensor({rows, 3}, stream + static_cast<uint64_t>(world->rank()), type);
        };
        const auto pause = [&] {
          if (world->rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        };
        const at::Tensor own = numbers(5, 10), made = numbers(5 * ranks, 20);
        at::Tensor gathered = at::empty({5 * ranks, 3}, own.options()), sum = at::empty_like(own);
        world->all_gather_single(gathered, own);
        world->reduce_scatter_single(sum, made);

        // A gather begins while the rows of a sum are on their way.
        const at::Tensor whole = at::zeros_like(made), taken = at::zeros_like(gathered);
        const auto going = exchange->scatter_sum(whole);
        pause();
        const auto coming = exchange->gather(own);
        going->make_each([&](const ops::RowRange& range) {
          pause();
          range.of(whole).copy_(range.of(made));
        });
        coming->take_each([&](const ops::RowRange& range) {
          pause();
          range.of(taken).copy_(range.of(coming->whole()));
        });
        EXPECT_TRUE(at::equal(taken, gathered));
        EXPECT_TRUE(at::equal(coming->wait_for_all(), gathered));
        EXPECT_TRUE(at::equal(going->finish(), sum));
      });
    }
  }
}

TEST(TokenExchangeTest, TwoRanks) { check_token_exchange(2); }
TEST(TokenExchangeTest, ThreeRanks) { check_token_exchange(3); }
TEST(TokenExchangeTest, FourRanks) { check_token_exchange(4); }

}  // namespace
}  // namespace tessera::parallel
