// Tests of recorded work on the fake device.
#include "tessera/device/device_graph.h"

#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/core/environment.h"
#include "tessera/device/device.h"

#include "tests/testing/fake_device.h"

namespace tessera {
namespace {

namespace fake = testing::fake_device;

constexpr int64_t kElements = 1000;

at::TensorOptions there() { return at::TensorOptions(fake::device(0)).dtype(at::kDouble); }
at::Tensor filled(double value) { return at::full({kElements}, value, there()); }
bool holds(const at::Tensor& x, double value) {
  return at::equal(x.to(kHost), at::full({kElements}, value, at::kDouble));
}

class DeviceGraphTest : public ::testing::Test {
 protected:
  void SetUp() override { fake::configure({.seed = 7}); }
  void TearDown() override {
    EXPECT_EQ(fake::fault(), "");
    fake::configure({});
  }
};

TEST_F(DeviceGraphTest, AReplayRunsWhatWasRecordedOnWhatIsThereThen) {
  ASSERT_TRUE(DeviceGraph::can_record(fake::device(0)));
  EXPECT_FALSE(DeviceGraph::can_record(at::kCPU));
  EXPECT_EQ(DeviceGraph::record(at::kCPU, [] { FAIL() << "nothing is recorded"; }), nullptr);
  const at::Tensor x = filled(1.0), count = filled(0.0);
  at::Tensor y;
  const auto graph = DeviceGraph::record(fake::device(0), [&] {
    count.add_(1.0);
    y = (x * 2.0 + count).mul_(1.0);
  });
  ASSERT_NE(graph, nullptr);
  EXPECT_TRUE(holds(count, 0.0)) << "nothing runs yet";
  for (const double value : {3.0, 4.0, 5.0}) {
    x.fill_(value);
    const int64_t before = fake::tasks(), replays = fake::replays(), waits = fake::waits();
    graph->replay();
    EXPECT_EQ(fake::tasks(), before + 1) << "all of it is one";
    EXPECT_EQ(fake::replays(), replays + 1);
    EXPECT_EQ(fake::waits(), waits);
    EXPECT_TRUE(holds(count, value - 2.0));
    EXPECT_TRUE(holds(y, 2.0 * value + value - 2.0));
  }
}

// Tells whether other tensors of the same sizes, made after the recording, keep their values through
// replays, and whether the recorded work is right.
bool memory_is_apart() {
  const at::Tensor x = filled(1.0);
  at::Tensor y;
  const auto graph = DeviceGraph::record(fake::device(0), [&] {
    const at::Tensor inner = x + 1.0, more = inner * 2.0;
    y = (inner + more) * 1.0;
  });
  std::vector<at::Tensor> others;
  for (int i = 0; i < 8; ++i) others.push_back(filled(50.0 + i));
  graph->replay();
  bool is_apart = holds(y, 6.0);
  for (int i = 0; i < 8; ++i) is_apart = is_apart && holds(others[static_cast<size_t>(i)], 50.0 + i);
  graph->replay();
  return is_apart && holds(y, 6.0);
}

TEST_F(DeviceGraphTest, NobodyElseGetsItsMemory) {
  EXPECT_TRUE(memory_is_apart());
  fake::configure({.seed = 7, .shares_graph_memory = true});
  EXPECT_FALSE(memory_is_apart()) << "the test would notice";
}

TEST_F(DeviceGraphTest, GraphsBesideEachOtherHaveTheSameMemory) {
  const at::Tensor x = filled(1.0);
  at::Tensor results[2];
  void* inner[2] = {};
  const auto record = [&](int number, const DeviceGraph* beside) {
    return DeviceGraph::record(
        fake::device(0),
        [&] {
          const at::Tensor made = x + static_cast<double>(number);
          inner[number] = made.mutable_data_ptr();
          results[number] = made * 2.0;
        },
        beside);
  };
  auto first = record(0, nullptr);
  const auto second = record(1, first.get());
  EXPECT_EQ(inner[0], inner[1]);
  for (int round = 0; round < 3; ++round) {
    first->replay();
    EXPECT_TRUE(holds(results[0], 2.0));
    second->replay();
    EXPECT_TRUE(holds(results[1], 4.0));
  }
  first.reset();
  // The memory still belongs to the second graph.
  std::vector<at::Tensor> others;
  for (int i = 0; i < 8; ++i) others.push_back(filled(9.0));
  second->replay();
  EXPECT_TRUE(holds(results[1], 4.0));
  for (const at::Tensor& other : others) EXPECT_TRUE(holds(other, 9.0));
}

TEST_F(DeviceGraphTest, TheEnvironmentTurnsItOff) {
  environment::set("TESSERA_GRAPHS", "0");
  EXPECT_FALSE(DeviceGraph::can_record(fake::device(0)));
  EXPECT_EQ(DeviceGraph::record(fake::device(0), [] { FAIL() << "nothing is recorded"; }), nullptr);
  environment::unset("TESSERA_GRAPHS");
  EXPECT_TRUE(DeviceGraph::can_record(fake::device(0)));
}

// This must be the last test: nothing is recorded in this process afterwards.
TEST_F(DeviceGraphTest, WhatCannotBeRecordedEndsInNull) {
  const at::Tensor x = filled(2.0);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(DeviceGraph::record(fake::device(0), [&] { static_cast<void>(x.sum().item<double>()); }),
            nullptr);
  EXPECT_FALSE(DeviceGraph::can_record(fake::device(0)));
  EXPECT_EQ(DeviceGraph::record(fake::device(0), [] { FAIL() << "nothing is recorded"; }), nullptr);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("a wait is not permitted"), std::string::npos) << said;
  EXPECT_EQ(said.find('\n'), said.size() - 1) << said;
  EXPECT_EQ(x.sum().item<double>(), 2.0 * kElements) << "the device goes on";
}

}  // namespace
}  // namespace tessera
