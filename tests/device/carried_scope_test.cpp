#include "tessera/device/carried_scope.h"

#include <optional>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/ThreadLocalState.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tessera/device/memory_scope.h"

namespace tessera {
namespace {

struct Number {
  int value;
};
struct Other {
  int value;
};
using NumberScope = CarriedScope<Number>;

std::optional<int> current_number() {
  const Number* number = NumberScope::current();
  return number == nullptr ? std::nullopt : std::optional(number->value);
}

TEST(CarriedScopeTest, ScopesNestEachTypeByItself) {
  EXPECT_EQ(current_number(), std::nullopt);
  {
    const NumberScope outer({1});
    const CarriedScope<Other> other({2});
    EXPECT_EQ(current_number(), 1);
    {
      const NumberScope inner({3});
      EXPECT_EQ(current_number(), 3);
      EXPECT_EQ(CarriedScope<Other>::current()->value, 2);
    }
    EXPECT_EQ(current_number(), 1);
    EXPECT_EQ(current_memory_category(), MemoryCategory::Other);
  }
  EXPECT_EQ(current_number(), std::nullopt);
  EXPECT_EQ(CarriedScope<Other>::current(), nullptr);
}

TEST(CarriedScopeTest, AThreadSeesThemUnderTheStateOfAnotherEvenAfterTheyEnd) {
  std::optional<at::ThreadLocalState> state;
  {
    const NumberScope outer({1});
    const MemoryScope memory(MemoryCategory::Loss);
    const NumberScope inner({2});
    state.emplace();
  }
  std::thread([&] {
    EXPECT_EQ(current_number(), std::nullopt);
    {
      const at::ThreadLocalStateGuard guard(*state);
      EXPECT_EQ(current_number(), 2);
      EXPECT_EQ(current_memory_category(), MemoryCategory::Loss);
      const MemoryScope own(MemoryCategory::Backward);
      EXPECT_EQ(current_memory_category(), MemoryCategory::Backward);
      EXPECT_EQ(current_number(), 2);
    }
    EXPECT_EQ(current_number(), std::nullopt);
    EXPECT_EQ(current_memory_category(), MemoryCategory::Other);
  }).join();
}

// A function whose backward notes the scopes that it sees.
struct Seen {
  std::optional<int> number;
  MemoryCategory category = MemoryCategory::Other;
  std::thread::id thread;
};
struct LookingFunction : torch::autograd::Function<LookingFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, int64_t seen) {
    ctx->saved_data["seen"] = seen;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    auto* seen = reinterpret_cast<Seen*>(ctx->saved_data["seen"].toInt());
    *seen = {current_number(), current_memory_category(), std::this_thread::get_id()};
    return {grads[0], {}};
  }
};

TEST(CarriedScopeTest, ABackwardOnAnotherThreadSeesThem) {
  Seen seen;
  const at::Tensor x = at::ones({2}).requires_grad_();
  const at::Tensor y = LookingFunction::apply(x, reinterpret_cast<int64_t>(&seen)).sum();
  const NumberScope number({7});
  const MemoryScope memory(MemoryCategory::Backward);
  std::thread([&, state = at::ThreadLocalState()] {
    const at::ThreadLocalStateGuard guard(state);
    y.backward();
  }).join();
  EXPECT_NE(seen.thread, std::this_thread::get_id());
  EXPECT_EQ(seen.number, 7);
  EXPECT_EQ(seen.category, MemoryCategory::Backward);
  EXPECT_TRUE(x.grad().defined());
}

}  // namespace
}  // namespace tessera
