// Tests of ranks that wait in vain, and of what they find out about the others.
#include "tessera/comm/flight_recorder.h"

#include <chrono>
#include <string>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tessera/comm/agreed_work.h"
#include "tessera/core/error.h"

#include "tests/testing/mpi_world.h"

namespace tessera::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShort{300}, kLong{60'000};

// Returns the message of the error that the wait for `work` throws; empty if it ends well.
std::string hang_of(Work& work) {
  try {
    work.wait();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-HANG-TIMEOUT");
    return error.what();
  }
  return "";
}

BarrierOptions patient() {
  BarrierOptions options;
  options.timeout = kLong;
  return options;
}

// Starts an all-reduce that is given up after some time.
std::shared_ptr<Work> short_all_reduce(Communicator& group, const at::Tensor& value,
                                       milliseconds timeout = kShort) {
  ReduceOptions options;
  options.timeout = timeout;
  options.hint = "a test";
  return group.all_reduce(value, true, options);
}

void expect_in(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "want '" << part << "' in '" << text << "'";
}

std::string process_of_last() { return testing::world()->all_gather_string(std::to_string(getpid())).back(); }

TEST(FlightRecorderTest, ARankThatComputesOnIsNamed) {
  auto world = testing::world();
  const int64_t last = world->size() - 1;
  const std::string process = process_of_last();
  const at::Tensor value = at::ones({1}, at::kDouble);
  world->barrier(patient());
  if (world->rank() == last) std::this_thread::sleep_for(kShort * 5);
  const auto work = short_all_reduce(*world, value);
  if (world->rank() == last) {
    work->wait();
  } else {
    ::testing::internal::CaptureStderr();
    const std::string hang = hang_of(*work);
    const std::string told = ::testing::internal::GetCapturedStderr();
    if (world->size() == 2) expect_in(told, "(a test) has not finished for");
    if (!told.empty()) expect_in(told, "has not called it: it runs");
    expect_in(hang,
              "(a test) did not finish: rank " + std::to_string(last) + " (process " + process + " on ");
    expect_in(hang, "has not called it: it runs; its last call, barrier number");
    const auto notes = nlohmann::json::parse(flight::recordings(hang));
    ASSERT_EQ(notes.at("ranks").size(), static_cast<size_t>(world->size()));
    const auto& own = notes.at("ranks").at(world->rank());
    EXPECT_EQ(own.at("process"), getpid());
    EXPECT_EQ(own.at("collectives").back().at("op"), "all_reduce");
    EXPECT_EQ(own.at("collectives").back().at("bytes"), 8);
    EXPECT_TRUE(own.at("collectives").back().at("end_s_ago").is_null());
    while (!work->is_done()) std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(value.item<double>(), static_cast<double>(world->size()));
  EXPECT_TRUE(flight::has_hung() || world->rank() == last);
}

TEST(FlightRecorderTest, ARankThatWaitsForAThirdOneIsNotBlamed) {
  auto world = testing::world();
  if (world->size() < 3) return;
  const int64_t rank = world->rank();
  // One group holds the first two ranks, the other the last two: rank 0 waits for rank 1, which waits for
  // rank 2.
  const auto first = world->split(rank < 2 ? 0 : 1, rank, "first");
  const auto second = world->split(rank == 0 ? 0 : 1, rank, "second");
  const at::Tensor value = at::ones({1}, at::kDouble);
  world->barrier(patient());
  if (rank == 0) {
    const auto work = short_all_reduce(*first, value);
    const std::string hang = hang_of(*work);
    expect_in(hang, "rank 1 (process ");
    expect_in(hang,
              "has not called it, as it waits in all_reduce number 1 of group 'second'; rank 2 (process ");
    expect_in(hang, "has not called it: it runs");
    while (!work->is_done()) std::this_thread::sleep_for(milliseconds(1));
  } else if (rank < 3) {
    if (rank == 2) std::this_thread::sleep_for(kShort * 5);
    short_all_reduce(*second, value, kLong)->wait();
    if (rank == 1) short_all_reduce(*first, value, kLong)->wait();
  }
  world->barrier(patient());
}

TEST(FlightRecorderTest, RanksThatWaitForEachOtherAreBothNamed) {
  auto world = testing::world();
  const int64_t rank = world->rank();
  const auto one = world->split(0, rank, "one"), other = world->split(0, rank, "other");
  world->barrier(patient());
  const at::Tensor a = at::ones({1}, at::kDouble), b = at::ones({1}, at::kDouble);
  // The order of operations differs on the last rank, as it does after a skipped collective.
  const bool is_last = rank == world->size() - 1;
  // The last rank still waits when the others look at its notes.
  const auto work =
      short_all_reduce(is_last ? *other : *one, is_last ? b : a, is_last ? kShort * 10 : kShort);
  const std::string hang = hang_of(*work);
  if (rank == 0) {
    expect_in(hang, "rank " + std::to_string(world->size() - 1) + " (process ");
    expect_in(hang, "waits in all_reduce number 1 of group 'other'");
  }
  const auto rest = short_all_reduce(is_last ? *one : *other, is_last ? a : b);
  while (!work->is_done() || !rest->is_done()) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(a.item<double>(), b.item<double>());
}

TEST(FlightRecorderTest, AMessageThatDoesNotComeNamesItsSender) {
  auto world = testing::world();
  const at::Tensor value = at::ones({4}, at::kDouble);
  world->barrier(patient());
  if (world->rank() == 0) {
    P2pOptions options;
    options.timeout = kShort;
    const auto work = world->recv(value, 1, 3, true, options);
    const std::string hang = hang_of(*work);
    expect_in(hang, "recv 0 <- 1 tag 3 (32 bytes)");
    expect_in(hang, "rank 1 (process ");
    expect_in(hang, "does not answer: it runs");
    while (!work->is_done()) std::this_thread::sleep_for(milliseconds(1));
  } else if (world->rank() == 1) {
    std::this_thread::sleep_for(kShort * 5);
    world->send(value, 0, 3);
  }
  world->barrier(patient());
}

// A save takes longer than the timeout.
TEST(FlightRecorderTest, WaitingForStorageIsNoHang) {
  const auto group = testing::world()->split(0, testing::world()->rank(), "saving");
  group->set_default_timeout(kShort);
  AgreedWork work({group.get()}, "save the checkpoint");
  group->barrier(patient());
  work.run_on_first([] { std::this_thread::sleep_for(kShort * 6); });
  work.finish();
  group->barrier();
}

// It fills the recorder of this process, so it is the last test.
TEST(FlightRecorderTest, GroupsThatFindNoRoomAreToldOfOnce) {
  ::testing::internal::CaptureStderr();
  for (uint64_t group = 0; group < 200; ++group)
    flight::join(1'000'000 + group, 0, {testing::world()->rank()});
  const std::string told = ::testing::internal::GetCapturedStderr();
  if (testing::world()->rank() != 0) return;
  expect_in(told, "only the first 128 groups of ranks are noted");
  EXPECT_EQ(told.find("only the first"), told.rfind("only the first"));
}

}  // namespace
}  // namespace tessera::comm
