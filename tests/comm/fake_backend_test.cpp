#include "tessera/comm/fake/fake_backend.h"

#include <thread>

#include <gtest/gtest.h>

#include "tessera/core/error.h"

#include "tests/comm/collectives.h"
#include "tests/comm/message_checks.h"
#include "tests/comm/node_checks.h"
#include "tests/comm/order_checks.h"

namespace tessera::comm {
namespace {

TEST(FakeBackendTest, CollectivesAreRightForEveryRankCount) {
  for (const int64_t size : {1, 2, 3, 4, 5}) {
    run_fake_ranks(size, [](const auto& group) { testing::check_all_collectives(*group); });
  }
}

TEST(FakeBackendTest, RanksOfOneMachineUseItsMemory) {
  for (const int64_t size : {1, 2, 3, 4}) {
    SCOPED_TRACE(std::to_string(size) + " ranks");
    run_fake_ranks(size, [](const auto& group) { testing::check_node_collectives(*group); });
  }
}

TEST(FakeBackendTest, MessagesArriveWhateverTheirSizeAndOrder) {
  for (const int64_t size : {1, 2, 3, 4}) {
    SCOPED_TRACE(std::to_string(size) + " ranks");
    run_fake_ranks(size, [](const auto& group) { testing::check_messages(*group); });
  }
}

TEST(FakeBackendTest, OrdersAcrossGroupsAreFree) {
  for (const int64_t size : {1, 2, 3, 4}) {
    SCOPED_TRACE(std::to_string(size) + " ranks");
    run_fake_ranks(size, [](const auto& group) { testing::check_orders(*group); });
  }
}

TEST(FakeBackendTest, RanksOfTwoMachinesUseTheTransport) {
  run_fake_ranks(
      4,
      [](const auto& group) {
        EXPECT_FALSE(group->shared_bytes(100).defined());
        testing::check_all_collectives(*group);
        testing::check_parts_agree(*group);
        testing::check_uneven_gathers(*group);
        testing::check_uneven_exchanges(*group);
        // Each of these groups lies on one machine.
        const auto node = group->split(group->rank() / 2, group->rank(), "node");
        EXPECT_TRUE(node->shared_bytes(100).defined());
        testing::check_all_collectives(*node);
        const auto across = group->split(group->rank() % 2, group->rank(), "across");
        EXPECT_FALSE(across->shared_bytes(100).defined());
        testing::check_all_collectives(*across);
      },
      2);
}

TEST(FakeBackendTest, ReductionsAreTheSameBitsOnEveryRank) {
  std::vector<at::Tensor> results(3);
  run_fake_ranks(3, [&](const auto& group) {
    const at::Tensor values = at::pow(at::arange(50000, at::kFloat) + 1.0, -0.3 * (group->rank() + 1));
    group->all_reduce(values);
    results[group->rank()] = values;
  });
  EXPECT_TRUE(at::equal(results[0], results[1]));
  EXPECT_TRUE(at::equal(results[0], results[2]));
}

TEST(FakeBackendTest, AMissingRankEndsInAHangErrorThatNamesTheOperation) {
  auto world = make_fake_world(2);
  try {
    const at::Tensor value = at::ones({4});
    world[0]->all_reduce(value, false, {{std::chrono::milliseconds(50), "the test"}});
    FAIL() << "all_reduce must not return alone";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Hang);
    EXPECT_NE(
        std::string(error.what()).find("all_reduce number 1 of group 'world' on rank 0 of 2 (the test)"),
        std::string::npos)
        << error.what();
  }
  // Let the operation end, so that no thread is left behind.
  const at::Tensor value = at::ones({4});
  world[1]->all_reduce(value);
}

// Here the ranks have met in their shared memory already.
TEST(FakeBackendTest, AMissingRankEndsInAHangErrorInSharedMemoryToo) {
  auto world = make_fake_world(3);
  std::vector<std::thread> threads;
  for (const auto& group : world) threads.emplace_back([&group] { group->barrier(); });
  for (std::thread& thread : threads) thread.join();
  const at::Tensor values[3] = {at::ones({4}), at::ones({4}), at::ones({4})};
  auto work = world[2]->all_reduce(values[2], true);
  try {
    world[0]->all_reduce(values[0], false, {{std::chrono::milliseconds(50), "the test"}});
    FAIL() << "all_reduce must not return without rank 1";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Hang);
  }
  // When the late rank comes, the operation ends for all.
  world[1]->all_reduce(values[1]);
  work->wait();
  EXPECT_EQ(values[2][0].item<float>(), 3.0f);
}

TEST(SingleTest, AGroupOfOneCopies) {
  auto group = Communicator::single();
  EXPECT_EQ(group->size(), 1);
  EXPECT_EQ(group->backend_name(), "single");
  testing::check_all_collectives(*group);
}

}  // namespace
}  // namespace tessera::comm
