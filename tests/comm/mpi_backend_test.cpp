#include <gtest/gtest.h>

#include "tessera/comm/bootstrap.h"
#include "tessera/core/error.h"

#include "tests/comm/collectives.h"
#include "tests/comm/message_checks.h"
#include "tests/comm/node_checks.h"
#include "tests/comm/order_checks.h"
#include "tests/testing/mpi_world.h"

namespace tessera::comm {
namespace {

TEST(MpiBackendTest, CollectivesAreRight) {
  EXPECT_EQ(testing::world()->backend_name(), "mpi");
  testing::check_all_collectives(*testing::world());
}

TEST(MpiBackendTest, RanksOfOneMachineUseItsMemory) { testing::check_node_collectives(*testing::world()); }

TEST(MpiBackendTest, MessagesArriveWhateverTheirSizeAndOrder) { testing::check_messages(*testing::world()); }

TEST(MpiBackendTest, OrdersAcrossGroupsAreFree) { testing::check_orders(*testing::world()); }

TEST(MpiBackendTest, TheTransportIsRightToo) {
  const auto group = testing::world()->split(0, testing::world()->rank(), "by transport");
  group->set_shared_memory(false);
  testing::check_all_collectives(*group);
  EXPECT_FALSE(group->shared_bytes(100).defined());
}

TEST(MpiBackendTest, OperationsOverlapInTheOrderOfSubmission) {
  auto world = testing::world();
  std::vector<at::Tensor> values;
  std::vector<std::shared_ptr<Work>> works;
  for (int i = 0; i < 20; ++i) {
    values.push_back(at::full({1000}, static_cast<double>(i), at::kDouble));
    works.push_back(world->all_reduce(values.back(), true));
  }
  for (int i = 19; i >= 0; --i) {
    works[i]->wait();
    EXPECT_EQ(values[i][999].item<double>(), static_cast<double>(i * world->size()));
  }
}

TEST(MpiBackendTest, MpiStartsOnce) {
  try {
    const Bootstrap second;
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-CONFIG-BOOTSTRAP");
  }
}

}  // namespace
}  // namespace tessera::comm
