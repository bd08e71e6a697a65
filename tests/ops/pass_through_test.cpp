#include "tessera/ops/pass_through.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/ops/linear.h"
#include "tessera/ops/lora.h"
#include "tessera/ops/mlp_activation.h"
#include "tessera/ops/rms_norm.h"

#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

constexpr double kPassEps = 1e-5, kScaling = 0.7;

at::Tensor plain_norm_of(const at::Tensor& x, const at::Tensor& weight) {
  return weight * (x * at::rsqrt(x.pow(2).mean(-1, true) + kPassEps));
}

// Returns the value of x, and triples its gradient.
at::Tensor tripled(const at::Tensor& x) { return 3 * x - (2 * x).detach(); }

void triple_(const at::Tensor& gradient) {
  EXPECT_TRUE(gradient.is_contiguous());
  gradient.mul_(3);
}

// Here `in` is x, delta, norm weight, two weights, lora a and b. Two products, an adapter and another op read
// the passed value; a product and another op read the norm itself.
at::Tensor fused_two_readers(const Inputs& in) {
  const auto [residual, normed] = add_rms_norm(in[0], in[1], in[2], kPassEps);
  const Activation passed = change_gradient(normed, triple_);
  return residual.sum() * 0.1 + linear(passed, in[3]).sin().sum() + linear(passed, in[4]).cos().sum() +
         lora_linear(passed, in[4], std::nullopt, in[5], in[6], kScaling).pow(3).sum() +
         passed.value().exp().sum() + linear(normed, in[3]).cos().sum() + normed.value().sin().sum();
}
at::Tensor plain_two_readers(const Inputs& in) {
  const at::Tensor residual = in[0] + in[1], normed = plain_norm_of(residual, in[2]),
                   passed = tripled(normed);
  const at::Tensor adapted =
      at::linear(passed, in[4]) + kScaling * at::linear(at::linear(passed, in[5]), in[6]);
  return residual.sum() * 0.1 + at::linear(passed, in[3]).sin().sum() +
         at::linear(passed, in[4]).cos().sum() + adapted.pow(3).sum() + passed.exp().sum() +
         at::linear(normed, in[3]).cos().sum() + normed.sin().sum();
}

TEST(ChangeGradientTest, OfANormThatManyReadForEverySubsetOfGradients) {
  expect_same_for_subsets(
      fused_two_readers, plain_two_readers,
      {random_tensor({9, 5}, 1), random_tensor({9, 5}, 2), random_tensor({5}, 3), random_tensor({7, 5}, 4),
       random_tensor({3, 5}, 5), random_tensor({2, 5}, 6), random_tensor({3, 2}, 7)},
      7, 1e-11);
}

TEST(ChangeGradientTest, OfATensorWithoutASource) {
  const Op fused = [](const Inputs& in) {
    const Activation passed = change_gradient(in[0].sin(), triple_);
    EXPECT_EQ(passed.source(), nullptr);
    return linear(passed, in[1]) + linear(passed, in[2]).cos();
  };
  const Op formula = [](const Inputs& in) {
    const at::Tensor passed = tripled(in[0].sin());
    return at::linear(passed, in[1]) + at::linear(passed, in[2]).cos();
  };
  expect_same_for_subsets(fused, formula,
                          {random_tensor({6, 5}, 1), random_tensor({4, 5}, 2), random_tensor({4, 5}, 3)}, 3,
                          1e-12);
}

TEST(ChangeGradientTest, OfASourceThatLeavesGradientsToAutograd) {
  const Op fused = [](const Inputs& in) {
    return linear(change_gradient(mlp_activation(Nonlinearity::Silu, {in[0], in[1]}), triple_), in[2]);
  };
  const Op formula = [](const Inputs& in) { return at::linear(tripled(at::silu(in[0]) * in[1]), in[2]); };
  expect_same_for_subsets(fused, formula,
                          {random_tensor({6, 37}, 1), random_tensor({6, 37}, 2), random_tensor({4, 37}, 3)},
                          3, 1e-12);
}

TEST(ChangeGradientTest, HappensOnceBeforeTheNormAndAfterAllReaders) {
  const at::Tensor x = trained(random_tensor({6, 5}, 1)), scale = random_tensor({5}, 2);
  std::vector<at::Tensor> seen;
  const auto keep = [&](const at::Tensor& gradient) { seen.push_back(gradient.clone()); };
  const auto [residual, normed] = add_rms_norm(x, std::nullopt, scale, kPassEps);
  const Activation passed = change_gradient(normed, keep);
  const at::Tensor a = random_tensor({3, 5}, 3), b = random_tensor({4, 5}, 4);
  (linear(passed, a).sum() + linear(passed, b).sum()).backward();
  ASSERT_EQ(seen.size(), 1U);
  expect_near(seen[0], (a.sum(0) + b.sum(0)).expand({6, 5}), 1e-12, "sum of both readers");
}

TEST(ChangeGradientTest, IsNotCalledWithoutAReaderOrAGraph) {
  const auto fail = [](const at::Tensor&) { FAIL() << "called"; };
  const at::Tensor x = trained(random_tensor({6, 5}, 1)), scale = random_tensor({5}, 2);
  const auto [residual, normed] = add_rms_norm(x, std::nullopt, scale, kPassEps);
  change_gradient(normed, fail);
  residual.sum().backward();
  const at::Tensor plain = random_tensor({2, 5}, 3);
  EXPECT_TRUE(change_gradient(plain, fail).value().is_same(plain));
}

TEST(ChangeGradientTest, IsNotDifferentiableItself) {
  const at::Tensor x = trained(random_tensor({2, 3}, 1));
  const at::Tensor y = change_gradient(x, triple_).value().sin().sum();
  EXPECT_THROW(torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true), Error);
}

// Returns x over 2 x, a tensor of another shape.
at::Tensor stacked(const at::Tensor& x) { return at::cat({x, 2 * x}); }
at::Tensor unstacked(const at::Tensor& gradient) {
  EXPECT_TRUE(gradient.is_contiguous());
  const int64_t rows = gradient.size(0) / 2;
  return gradient.narrow(0, 0, rows) + 2 * gradient.narrow(0, rows, rows);
}

// Does the same as fused_two_readers(), with an exchange.
at::Tensor fused_exchange(const Inputs& in) {
  const auto [residual, normed] = add_rms_norm(in[0], in[1], in[2], kPassEps);
  const Activation passed = exchange(normed, stacked, unstacked);
  return residual.sum() * 0.1 + linear(passed, in[3]).sin().sum() + linear(passed, in[4]).cos().sum() +
         lora_linear(passed, in[4], std::nullopt, in[5], in[6], kScaling).pow(3).sum() +
         passed.value().exp().sum() + linear(normed, in[3]).cos().sum() + normed.value().sin().sum();
}
at::Tensor plain_exchange(const Inputs& in) {
  const at::Tensor residual = in[0] + in[1], normed = plain_norm_of(residual, in[2]),
                   passed = stacked(normed);
  const at::Tensor adapted =
      at::linear(passed, in[4]) + kScaling * at::linear(at::linear(passed, in[5]), in[6]);
  return residual.sum() * 0.1 + at::linear(passed, in[3]).sin().sum() +
         at::linear(passed, in[4]).cos().sum() + adapted.pow(3).sum() + passed.exp().sum() +
         at::linear(normed, in[3]).cos().sum() + normed.sin().sum();
}

TEST(ExchangeTest, OfANormThatManyReadForEverySubsetOfGradients) {
  expect_same_for_subsets(
      fused_exchange, plain_exchange,
      {random_tensor({9, 5}, 1), random_tensor({9, 5}, 2), random_tensor({5}, 3), random_tensor({7, 5}, 4),
       random_tensor({3, 5}, 5), random_tensor({2, 5}, 6), random_tensor({3, 2}, 7)},
      7, 1e-11);
}

TEST(ExchangeTest, OfATensorWithoutASource) {
  const Op fused = [](const Inputs& in) {
    const Activation passed = exchange(in[0].sin(), stacked, unstacked);
    return linear(passed, in[1]) + linear(passed, in[2]).cos();
  };
  const Op formula = [](const Inputs& in) {
    const at::Tensor passed = stacked(in[0].sin());
    return at::linear(passed, in[1]) + at::linear(passed, in[2]).cos();
  };
  expect_same_for_subsets(fused, formula,
                          {random_tensor({6, 5}, 1), random_tensor({4, 5}, 2), random_tensor({4, 5}, 3)}, 3,
                          1e-12);
}

TEST(ExchangeTest, OfAValueThatNoProductReads) {
  const Op fused = [](const Inputs& in) { return exchange_value(in[0].sin(), stacked, unstacked).cos(); };
  const Op formula = [](const Inputs& in) { return stacked(in[0].sin()).cos(); };
  expect_same_for_subsets(fused, formula, {random_tensor({6, 5}, 1)}, 1, 1e-12);
}

// Products keep only the argument of the exchange, and make its value again once.
TEST(ExchangeTest, IsMadeAgainInTheBackward) {
  int64_t made = 0;
  const auto count = [&](const at::Tensor& x) {
    ++made;
    return stacked(x);
  };
  const at::Tensor x = random_tensor({6, 5}, 1);
  const at::Tensor a = trained(random_tensor({4, 5}, 2)), b = trained(random_tensor({3, 5}, 3));
  at::Tensor loss;
  {
    const Activation passed = exchange(x, count, unstacked);
    loss = linear(passed, a).sum() + linear(passed, b).sum();
  }
  EXPECT_EQ(made, 1);
  loss.backward();
  EXPECT_EQ(made, 2);
  expect_near(a.grad(), stacked(x).sum(0).expand({4, 5}), 1e-12, "gradient of a");
}

// Exchanges rows as stacked() and unstacked() do, in thirds from the last one to the first. Rows that have
// not come yet are NaN, and rows that have been sent are not read again.
class ByRows : public RowExchange {
 public:
  std::shared_ptr<IncomingRows> gather(const at::Tensor& own) const override {
    return std::make_shared<Coming>(stacked(own));
  }
  std::shared_ptr<OutgoingRows> scatter_sum(const at::Tensor& whole) const override {
    return std::make_shared<Going>(whole);
  }

 private:
  static std::vector<RowRange> ranges(int64_t rows) {
    const int64_t third = rows / 3;
    return {{rows - third, third}, {third, rows - 2 * third}, {0, third}};
  }
  struct Coming : IncomingRows {
    explicit Coming(const at::Tensor& all)
        : IncomingRows(at::full_like(all, std::nan("")), ranges(all.size(0))), all(all) {}
    void wait(size_t range) override {
      const RowRange rows = ranges(all.size(0))[range];
      rows.of(whole()).copy_(rows.of(all));
    }
    const at::Tensor all;
  };
  struct Going : OutgoingRows {
    explicit Going(const at::Tensor& whole)
        : OutgoingRows(ranges(whole.size(0))), whole(whole), gone(at::full_like(whole, std::nan(""))) {}
    void send(size_t range) override {
      const RowRange rows = ranges(whole.size(0))[range];
      rows.of(gone).copy_(rows.of(whole));
    }
    at::Tensor finish() override { return unstacked(gone); }
    const at::Tensor whole, gone;
  };
};

const auto kByRows = c10::make_intrusive<ByRows>();

// Exchanges the rows of the norm that fused_two_readers() has; the last reader sends the rows of the
// gradient, and the gradient of a reader that autograd runs is added to it.
at::Tensor rows_exchange(const Inputs& in) {
  const auto [residual, normed] = add_rms_norm(in[0], in[1], in[2], kPassEps);
  const Activation passed = exchange(normed, kByRows);
  const at::Tensor first = linear(passed, in[3]).sin().sum();
  return residual.sum() * 0.1 + first + linear(passed, in[4]).cos().sum() +
         lora_linear(passed, in[4], std::nullopt, in[5], in[6], kScaling).pow(3).sum() +
         passed.value().exp().sum() + linear(normed, in[3]).cos().sum() + normed.value().sin().sum();
}

TEST(RowExchangeTest, OfANormThatManyReadForEverySubsetOfGradients) {
  expect_same_for_subsets(
      rows_exchange, plain_exchange,
      {random_tensor({9, 5}, 1), random_tensor({9, 5}, 2), random_tensor({5}, 3), random_tensor({7, 5}, 4),
       random_tensor({3, 5}, 5), random_tensor({2, 5}, 6), random_tensor({3, 2}, 7)},
      7, 1e-11);
}

// One adapter reads the rows first, while they are on their way, and has dropout; the other has none.
TEST(RowExchangeTest, OfAnAdapterThatReadsFirst) {
  const at::Tensor mask = random_tensor({12, 5}, 9).gt(0).to(at::kDouble) * 2.0;
  const Op fused = [&](const Inputs& in) {
    const Activation passed = exchange(in[0].sin(), kByRows);
    const at::Tensor adapted = lora_linear(passed, in[1], std::nullopt, in[2], in[3], kScaling, mask);
    return adapted.cos() + lora_linear(passed, in[1], std::nullopt, in[2], in[3], kScaling);
  };
  const Op formula = [&](const Inputs& in) {
    const at::Tensor passed = stacked(in[0].sin());
    const auto adapted = [&](const at::Tensor& x) {
      return at::linear(passed, in[1]) + kScaling * at::linear(at::linear(x, in[2]), in[3]);
    };
    return adapted(passed * mask).cos() + adapted(passed);
  };
  expect_same_for_subsets(fused, formula,
                          {random_tensor({6, 5}, 1), random_tensor({4, 5}, 2), random_tensor({2, 5}, 3),
                           random_tensor({4, 2}, 4)},
                          4, 1e-12);
}

TEST(RowExchangeTest, OfTheRowsThatAProductMakes) {
  const Op fused = [](const Inputs& in) { return linear(in[0].sin(), in[1], std::nullopt, kByRows).cos(); };
  const Op formula = [](const Inputs& in) {
    const at::Tensor y = at::linear(in[0].sin(), in[1]);
    return (y.narrow(0, 0, 6) + 2 * y.narrow(0, 6, 6)).cos();
  };
  expect_same_for_subsets(fused, formula, {random_tensor({12, 5}, 1), random_tensor({4, 5}, 2)}, 2, 1e-12);
}

// The input comes by an exchange or not, and has dropout or not.
TEST(RowExchangeTest, OfTheRowsThatAnAdapterMakes) {
  const at::Tensor mask = random_tensor({12, 5}, 9).gt(0).to(at::kDouble) * 2.0;
  for (const bool is_dropped : {false, true}) {
    for (const bool comes : {false, true}) {
      const Op fused = [&](const Inputs& in) {
        const Activation x = comes ? exchange(in[0].narrow(0, 0, 6).sin(), kByRows) : Activation(in[0].sin());
        return lora_linear(x, in[1], std::nullopt, in[2], in[3], kScaling,
                           is_dropped ? std::optional(mask) : std::nullopt, kByRows)
            .cos();
      };
      const Op formula = [&](const Inputs& in) {
        const at::Tensor x = comes ? stacked(in[0].narrow(0, 0, 6).sin()) : in[0].sin();
        const at::Tensor read = is_dropped ? x * mask : x;
        const at::Tensor y = at::linear(x, in[1]) + kScaling * at::linear(at::linear(read, in[2]), in[3]);
        return (y.narrow(0, 0, 6) + 2 * y.narrow(0, 6, 6)).cos();
      };
      expect_same_for_subsets(fused, formula,
                              {random_tensor({12, 5}, 1), random_tensor({4, 5}, 2), random_tensor({2, 5}, 3),
                               random_tensor({4, 2}, 4)},
                              4, 1e-12);
    }
  }
}

// The rows that one product asks for are there for the others, whichever asks first; the value is made again
// once.
TEST(RowExchangeTest, GathersOnceInEachDirection) {
  struct Counting : ByRows {
    std::shared_ptr<IncomingRows> gather(const at::Tensor& own) const override {
      ++gathers;
      return ByRows::gather(own);
    }
    std::shared_ptr<OutgoingRows> scatter_sum(const at::Tensor& whole) const override {
      ++sums;
      return ByRows::scatter_sum(whole);
    }
    mutable int64_t gathers = 0, sums = 0;
  };
  const auto rows = c10::make_intrusive<Counting>();
  const at::Tensor x = trained(random_tensor({6, 5}, 1));
  const at::Tensor a = trained(random_tensor({4, 5}, 2)), frozen = random_tensor({3, 5}, 3),
                   b = trained(random_tensor({3, 5}, 4));
  const Activation passed = exchange(x, rows);
  const at::Tensor loss =
      linear(passed, a).sum() + linear(passed, frozen).sin().sum() + linear(passed, b).sum();
  EXPECT_EQ(rows->gathers, 1);
  loss.backward();
  EXPECT_EQ(rows->gathers, 2);
  EXPECT_EQ(rows->sums, 1);
  expect_near(a.grad(), stacked(x).sum(0).expand({4, 5}), 1e-12, "gradient of a");
}

// Rows are sent before the next ones are made, and are multiplied before the next ones have come.
TEST(RowExchangeTest, NoRowWaitsForAnother) {
  struct Watching : RowExchange {
    struct Going : OutgoingRows {
      explicit Going(const at::Tensor& whole)
          : OutgoingRows({{3, 3}, {0, 3}}), whole(whole.fill_(std::nan(""))) {}
      void send(size_t range) override {
        EXPECT_EQ(at::isnan(whole.narrow(0, 0, 3)).all().item<bool>(), range == 0);
        EXPECT_FALSE(at::isnan(whole.narrow(0, 3, 3)).any().item<bool>());
      }
      at::Tensor finish() override { return whole; }
      const at::Tensor whole;
    };
    std::shared_ptr<IncomingRows> gather(const at::Tensor& own) const override { return nullptr; }
    std::shared_ptr<OutgoingRows> scatter_sum(const at::Tensor& whole) const override {
      return std::make_shared<Going>(whole);
    }
  };
  linear(random_tensor({6, 5}, 1), random_tensor({4, 5}, 2), std::nullopt, c10::make_intrusive<Watching>());
  struct Late : IncomingRows {
    Late() : IncomingRows(at::ones({6, 5}, at::kDouble), {{3, 3}, {0, 3}}) {}
    void wait(size_t range) override { waits.push_back(range); }
    std::vector<size_t> waits;
  };
  Late late;
  late.take_each([&](const RowRange& range) { EXPECT_EQ(late.waits.size(), range.begin == 3 ? 1U : 2U); });
  late.wait_for_all();
  EXPECT_EQ(late.waits.size(), 2U) << "once for each";
}

TEST(ChangeValueTest, ChangesTheValueAndPassesTheGradient) {
  const Op fused = [](const Inputs& in) {
    return change_value_(linear(in[0], in[1]), [](const at::Tensor& y) { y.add_(2.0); }).sin();
  };
  const Op formula = [](const Inputs& in) { return (at::linear(in[0], in[1]) + 2.0).sin(); };
  expect_same_for_subsets(fused, formula, {random_tensor({6, 5}, 1), random_tensor({4, 5}, 2)}, 2, 1e-12);
}

TEST(ChangeValueTest, NoticesThatAnotherOpHasKeptTheValue) {
  const at::Tensor y = linear(trained(random_tensor({6, 5}, 1)), random_tensor({4, 5}, 2));
  const at::Tensor kept = y.sin();
  change_value_(y, [](const at::Tensor& value) { value.add_(1.0); });
  EXPECT_THROW(kept.sum().backward(), c10::Error);
}

}  // namespace
}  // namespace tessera::ops
