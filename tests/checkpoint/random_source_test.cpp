#include "tessera/checkpoint/random_source.h"

#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/core/rng.h"
#include "tessera/nn/linear.h"
#include "tessera/nn/rms_norm.h"

#include "tests/checkpoint/random_boxes.h"

namespace tessera::checkpoint {
namespace {

using parallel::Box;

TEST(FillBox, EveryElementIsAFunctionOfItsPlaceInTheWhole) {
  testing::RandomBoxes random;
  for (int round = 0; round < 200; ++round) {
    const std::vector<int64_t> shape = random.shape(4, 7);
    const auto value = random.flip() ? nn::InitialValue::normal(0.1) : nn::InitialValue::uniform(0.5);
    const at::ScalarType type = std::vector{at::kDouble, at::kFloat, at::kBFloat16}[random.in(0, 2)];
    const at::Tensor whole = at::empty(shape, type);
    fill_box(whole, "x.weight", shape, whole_box(shape), value, 5);
    const Box box = random.box(shape);
    const at::Tensor part = at::empty(box.size, type);
    fill_box(part, "x.weight", shape, box, value, 5);
    ASSERT_TRUE(at::equal(part, parallel::box_part(whole, box))) << at::IntArrayRef(shape);
  }
}

TEST(FillBox, TheNumbersAreThoseOfTheCounter) {
  const CounterRng rng(7, stream_of("a.weight"));
  const std::vector<int64_t> shape = {300, 50};
  const at::Tensor normal = at::empty(shape, at::kDouble), uniform = at::empty(shape, at::kDouble);
  fill_box(normal, "a.weight", shape, whole_box(shape), nn::InitialValue::normal(0.02), 7);
  fill_box(uniform, "a.weight", shape, whole_box(shape), nn::InitialValue::uniform(0.25), 7);
  for (int64_t i = 0; i < normal.numel(); ++i) {
    const auto index = static_cast<uint64_t>(i);
    ASSERT_EQ(normal.const_data_ptr<double>()[i], 0.02 * rng.normal(index));
    ASSERT_EQ(uniform.const_data_ptr<double>()[i], 0.25 * (2.0 * rng.uniform(index) - 1.0));
  }
  EXPECT_NEAR(normal.mean().item<double>(), 0.0, 0.001);
  EXPECT_NEAR(normal.std().item<double>(), 0.02, 0.001);
  EXPECT_NEAR(uniform.std().item<double>(), 0.25 / std::sqrt(3.0), 0.003);
  const at::Tensor other = at::empty(shape, at::kDouble);
  fill_box(other, "b.weight", shape, whole_box(shape), nn::InitialValue::normal(0.02), 7);
  EXPECT_FALSE(at::equal(other, normal));
}

struct Part : torch::nn::Module {
  Part() {
    linear = register_module("linear", std::make_shared<nn::Linear>(3, 2, true, at::kFloat));
    norm = register_module("norm", std::make_shared<nn::RMSNorm>(3, 1e-5, at::kFloat));
    mine = register_parameter("mine", at::empty({2}));
  }
  std::shared_ptr<nn::Linear> linear;
  std::shared_ptr<nn::RMSNorm> norm;
  at::Tensor mine;
};

TEST(RandomSource, ModulesSayWhatTheyStartFrom) {
  auto root = std::make_shared<torch::nn::Module>("root");
  const auto part = root->register_module("part", std::make_shared<Part>());
  const RandomSource source(*root, 0.5, 3);
  // The source has copied the shapes, so later changes of the module do not matter.
  part->linear->weight.set_data(at::empty({0}, at::TensorOptions().device(at::kMeta)));
  EXPECT_FALSE(source.holds("part.mine")) << "a module that says nothing";
  EXPECT_FALSE(source.holds("linear.weight"));
  const auto read = [&](const std::string& name, const Box& box) {
    const at::Tensor got = at::full(box.size, 7.0, at::kDouble);
    source.read(name, box, got);
    return got;
  };
  EXPECT_TRUE(at::equal(read("part.norm.weight", {{1}, {2}}), at::ones({2}, at::kDouble)));
  EXPECT_TRUE(at::equal(read("part.linear.bias", {{0}, {2}}), at::zeros({2}, at::kDouble)));
  const CounterRng rng(3, stream_of("part.linear.weight"));
  const at::Tensor column = read("part.linear.weight", {{0, 1}, {2, 1}});
  EXPECT_EQ(column[0][0].item<double>(), 0.5 * rng.normal(1));
  EXPECT_EQ(column[1][0].item<double>(), 0.5 * rng.normal(4));
}

}  // namespace
}  // namespace tessera::checkpoint
