// Tests that a request to one rank is carried out by all of them, once.
#include "tessera/train/run/agreed_requests.h"

#include <csignal>
#include <filesystem>

#include <gtest/gtest.h>

#include "tests/testing/mpi_world.h"
#include "tests/train/train_testing.h"

namespace tessera::train {
namespace {

class AgreedRequestsTest : public ::testing::Test {
 protected:
  // Returns the request that all ranks agree on in a step. `ask` is called after the exchange has begun.
  Request step(const std::function<void()>& ask = nullptr) { return requests_.agree(ask); }
  void touch_trigger() const {
    if (folder_.is_owner()) io::write_file_atomic(trigger_, "");
    world_->barrier();
  }
  void expect_taken() const {
    world_->barrier();
    EXPECT_FALSE(std::filesystem::exists(trigger_));
  }
  bool is_last() const { return world_->rank() + 1 == world_->size(); }

  std::shared_ptr<comm::Communicator> world_ = testing::world();
  testing::SharedFolder folder_{world_};
  const std::string trigger_ = folder_ / "out.tessera-save";
  RunSignals signals_;
  AgreedRequests requests_{signals_, *world_, trigger_};
};

TEST_F(AgreedRequestsTest, AllSaveWhereOneIsAsked) {
  EXPECT_EQ(step(), Request::None);
  if (is_last()) std::raise(SIGUSR1);
  EXPECT_EQ(step(), Request::Save);
  EXPECT_EQ(step(), Request::None);
  touch_trigger();
  EXPECT_EQ(step(), Request::Save);
  expect_taken();
  EXPECT_EQ(step(), Request::None);
}

// The signal reaches the other ranks after the first one has reported it, and before the checkpoint.
TEST_F(AgreedRequestsTest, ARequestThatReachesRanksAtDifferentMomentsIsOne) {
  if (world_->rank() == 0) std::raise(SIGUSR1);
  EXPECT_EQ(step([] { std::raise(SIGUSR1); }), Request::Save);
  EXPECT_EQ(step(), Request::None);
  if (is_last()) std::raise(SIGUSR1);
  EXPECT_EQ(step([this] { touch_trigger(); }), Request::Save);
  expect_taken();
  EXPECT_EQ(step(), Request::None);
}

TEST_F(AgreedRequestsTest, TheClockOfTheFirstRankAsksAllToSave) {
  if (world_->rank() == 0) requests_.ask_every(1e-9);
  EXPECT_EQ(step(), Request::SaveByTime);
  if (is_last()) std::raise(SIGUSR1);
  EXPECT_EQ(step(), Request::Save) << "a request of the user is more";
  EXPECT_TRUE(requests_.lets_evaluation_go_on());
  requests_.ask_every(3600.0);
  EXPECT_EQ(step(), Request::SaveByTime) << "due since the evaluation";
  EXPECT_EQ(step(), Request::None);
}

TEST_F(AgreedRequestsTest, ARequestThatIsMadeBehindACheckpointAsksForAnother) {
  if (is_last()) std::raise(SIGUSR1);
  EXPECT_EQ(step(), Request::Save);
  if (is_last()) std::raise(SIGUSR1);
  EXPECT_EQ(step(), Request::Save);
  EXPECT_EQ(step([this] {
              if (is_last()) std::raise(SIGUSR1);
            }),
            Request::None);
  EXPECT_EQ(step(), Request::Save);
}

TEST_F(AgreedRequestsTest, WhatAnEvaluationIsAskedForComesBehindIt) {
  if (is_last()) std::raise(SIGUSR1);
  EXPECT_TRUE(requests_.lets_evaluation_go_on());
  EXPECT_TRUE(requests_.lets_evaluation_go_on());
  EXPECT_EQ(step([] { std::raise(SIGUSR1); }), Request::Save);
  EXPECT_EQ(step(), Request::None);
}

TEST_F(AgreedRequestsTest, ToStopComesBeforeToSave) {
  signals_.defer_stops();
  if (world_->rank() == 0) std::raise(SIGUSR1);
  if (is_last()) std::raise(SIGTERM);
  EXPECT_EQ(step(), Request::Stop);
  EXPECT_EQ(requests_.stop_signal(), SIGTERM);
  EXPECT_FALSE(requests_.lets_evaluation_go_on());
}

}  // namespace
}  // namespace tessera::train
