// Tests that a save which runs beside the steps writes the values that there were when it began.
#include "tessera/checkpoint/background_save.h"

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/checkpoint/sharded_checkpoint.h"
#include "tessera/comm/fake/fake_backend.h"
#include "tessera/core/error.h"
#include "tessera/io/disk_calls.h"

#include "tests/testing/temp_folder.h"

namespace tessera::checkpoint {
namespace {

using parallel::Layout;
using parallel::Placement;

constexpr int64_t kRows = 7, kColumns = 5;

// A tensor that is cut over the ranks, and one that they all hold.
struct Carried {
  Carried(int64_t rank, int64_t size)
      : cut({kRows, kColumns}, DType::F32, {{"dp", size, Placement::shard(0, 1)}}),
        copied({kColumns}, DType::F64, {{"dp", size, Placement::replicate()}}),
        tile(at::full(cut.local_box({rank}).size, 1.0F)),
        whole(at::full({kColumns}, 1.0, at::kDouble)),
        rank_(rank) {}

  std::vector<StateTensor> tensors() const {
    return {state_tensor("cut", cut, {rank_}, tile), state_tensor("copied", copied, {rank_}, whole)};
  }
  void fill(double value) const {
    tile.fill_(value);
    whole.fill_(value);
  }

  Layout cut, copied;
  at::Tensor tile, whole;

 private:
  int64_t rank_;
};

CheckpointNotes notes_of(int64_t step) { return {step, "a-run", {{"note", step}}, {}}; }

void expect_all(const std::string& folder, int64_t step, double value) {
  const auto checkpoint = ShardedCheckpoint::open(folder + "/checkpoint-" + std::to_string(step));
  checkpoint->verify(0, 1);
  const at::Tensor cut = at::empty({kRows, kColumns}), copied = at::empty({kColumns}, at::kDouble);
  checkpoint->read("cut", {{0, 0}, {kRows, kColumns}}, cut);
  checkpoint->read("copied", {{0}, {kColumns}}, copied);
  EXPECT_TRUE(at::equal(cut, at::full_like(cut, value)));
  EXPECT_TRUE(at::equal(copied, at::full_like(copied, value)));
}

// Makes writes to the disk wait until is_held is false, and then fail with the error `cause`, if it is not 0.
class Disk {
 public:
  explicit Disk(int cause = 0) {
    io::disk::set_hook([this, cause](std::string_view call, const std::string&) {
      while (call == "write" && is_held) std::this_thread::yield();
      return call == "write" ? cause : 0;
    });
  }
  ~Disk() { io::disk::set_hook(nullptr); }
  std::atomic<bool> is_held = true;
};

TEST(BackgroundSaveTest, TheSnapshotIsOfTheMomentWhenTheSaveBegins) {
  for (const int ranks : {1, 2, 3}) {
    SCOPED_TRACE(ranks);
    const testing::TempFolder folder;
    Disk disk;
    comm::run_fake_ranks(ranks, [&](const auto& world) {
      const Carried carried(world->rank(), ranks);
      BackgroundSave saving(*world);
      std::atomic<int> ends = 0;
      carried.fill(3.0);
      EXPECT_TRUE(saving.has_memory_for(carried.tensors()));
      saving.start(carried.tensors(), notes_of(1), folder.path(), [&] { ++ends; });
      carried.fill(4.0);
      EXPECT_TRUE(saving.is_under_way());
      EXPECT_FALSE(saving.has_ended());
      EXPECT_EQ(ends, 0);
      world->barrier();
      disk.is_held = false;
      while (!saving.has_ended()) std::this_thread::yield();
      saving.wait();
      EXPECT_FALSE(saving.is_under_way());
      EXPECT_EQ(ends, 1);
      // The next snapshot uses the memory of the last one.
      saving.start(carried.tensors(), notes_of(2), folder.path(), [] {});
      carried.fill(5.0);
      saving.wait();
      saving.save(carried.tensors(), notes_of(3), folder.path(), [] {});
      world->barrier();
      disk.is_held = true;
    });
    for (int64_t step = 1; step <= 3; ++step)
      expect_all(folder.path(), step, 2.0 + static_cast<double>(step));
  }
}

TEST(BackgroundSaveTest, AnErrorIsHeardOnAllRanksWhenItIsWaitedFor) {
  const testing::TempFolder folder;
  std::atomic<int> told = 0;
  {
    Disk disk(ENOSPC);
    disk.is_held = false;
    comm::run_fake_ranks(3, [&](const auto& world) {
      const Carried carried(world->rank(), 3);
      BackgroundSave saving(*world);
      saving.start(carried.tensors(), notes_of(1), folder.path(), [] { ADD_FAILURE() << "it has failed"; });
      try {
        saving.wait();
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::Storage) << error.what();
        ++told;
      }
      EXPECT_FALSE(saving.is_under_way());
    });
  }
  EXPECT_EQ(told, 3);
  EXPECT_TRUE(folder.entries().empty());
}

TEST(BackgroundSaveTest, TheEndWaitsForWhatIsUnderWay) {
  const testing::TempFolder folder;
  Disk disk;
  comm::run_fake_ranks(2, [&](const auto& world) {
    const Carried carried(world->rank(), 2);
    std::thread lets_go;
    {
      BackgroundSave saving(*world);
      saving.start(carried.tensors(), notes_of(1), folder.path(), [] {});
      if (world->rank() == 0) lets_go = std::thread([&] { disk.is_held = false; });
    }
    if (lets_go.joinable()) lets_go.join();
  });
  expect_all(folder.path(), 1, 1.0);
}

TEST(BackgroundSaveTest, MemoryIsCountedOnce) {
  const Carried carried(0, 1);
  Snapshot snapshot;
  const int64_t bytes = kRows * kColumns * 4 + kColumns * 8;
  EXPECT_EQ(snapshot.bytes_to_come(carried.tensors()), bytes);
  (void)snapshot.take(carried.tensors());
  EXPECT_EQ(snapshot.bytes_to_come(carried.tensors()), 0);
  // The tensor is larger than the memory of any machine.
  StateTensor large = carried.tensors()[0];
  large.layout =
      Layout({int64_t{1} << 25, int64_t{1} << 25}, DType::F32, {{"dp", 1, Placement::replicate()}});
  const auto world = comm::Communicator::single();
  EXPECT_FALSE(BackgroundSave(*world).has_memory_for({large}));
}

}  // namespace
}  // namespace tessera::checkpoint
