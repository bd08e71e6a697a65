// Tests of the file for offloaded states: both engines, with and without direct I/O, and the faults of a
// drive.
#include "tessera/io/spill_file.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <random>
#include <sys/wait.h>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tessera/io/disk_calls.h"
#include "tessera/io/file.h"

#include "tests/io/expect_error.h"
#include "tests/io/file_size_limit.h"
#include "tests/testing/temp_folder.h"

namespace tessera::io {
namespace {

using testing::expect_error;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::TempFolder;

constexpr int64_t kBlock = kSpillAlignment;

// Hooks that end with the test.
struct Hooks {
  ~Hooks() {
    disk::set_hook({});
    disk::set_transfer_hook({});
  }
};

// Fails the call of this name, wherever it is made, with a cause.
disk::Hook failing(std::string_view name, int cause) {
  return [=](std::string_view call, const std::string&) { return call == name ? cause : 0; };
}

// Every way to move bytes that the system lets: where it refuses io_uring or direct I/O, the same one again.
std::vector<SpillOptions> all_ways() {
  std::vector<SpillOptions> ways;
  for (const bool ring : {true, false}) {
    for (const bool direct : {true, false})
      ways.push_back({.request_bytes = 4 * kBlock, .depth = 3, .tries_ring = ring, .tries_direct = direct});
  }
  return ways;
}

void fill(std::span<char> bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, sizeof word);
  }
}

bool is_same(std::span<const char> a, std::span<const char> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

void write(SpillFile& file, int64_t offset, std::span<const char> from) {
  Transfer transfer = file.start_write(offset, from);
  file.wait(transfer);
}
void read(SpillFile& file, int64_t offset, std::span<char> into) {
  Transfer transfer = file.start_read(offset, into);
  file.wait(transfer);
}

TEST(SpillFileTest, RangesOfAnySizeComeBackAndTheRestIsZero) {
  const TempFolder folder;
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  constexpr int64_t kBlocks = 200;
  for (const SpillOptions& way : all_ways()) {
    AlignedMemory registered(kBlocks * kBlock), other(kBlocks * kBlock), expected(kBlocks * kBlock);
    SpillFile file(folder.path(), kBlocks * kBlock, way, {registered.bytes()});
    SCOPED_TRACE(file.text());
    std::memset(expected.bytes().data(), 0, expected.bytes().size());
    for (int64_t round = 0; round < 8; ++round) {
      // Ranges that do not overlap are written together, from either memory.
      std::vector<Transfer> transfers;
      for (int64_t begin = 0; begin < kBlocks;) {
        const auto blocks = std::min<int64_t>(static_cast<int64_t>(random() % 40), kBlocks - begin);
        const AlignedMemory& from = random() % 2 == 0 ? registered : other;
        const auto part =
            from.bytes().subspan(static_cast<size_t>(begin * kBlock), static_cast<size_t>(blocks * kBlock));
        if (random() % 3 != 0) {
          fill(part, random());
          std::memcpy(expected.bytes().data() + begin * kBlock, part.data(), part.size());
          transfers.push_back(file.start_write(begin * kBlock, part));
        }
        begin += blocks + static_cast<int64_t>(random() % 3);
      }
      for (Transfer& transfer : transfers) file.wait(transfer);
      for (const AlignedMemory* into : {&registered, &other}) {
        fill(into->bytes(), 1);
        Transfer whole = file.start_read(0, into->bytes());
        while (!file.has_ended(whole)) std::this_thread::yield();
        file.wait(whole);
        file.wait(whole);  // a transfer that was waited for is ended
        ASSERT_TRUE(is_same(into->bytes(), expected.bytes()));
      }
    }
  }
  EXPECT_THAT(folder.entries(), IsEmpty());
}

TEST(SpillFileTest, ShortTransfersAndInterruptedOnesGoOn) {
  const TempFolder folder;
  const Hooks hooks;
  for (const SpillOptions& way : all_ways()) {
    std::atomic<int64_t> calls = 0;
    disk::set_transfer_hook([&](std::string_view, const std::string&, int64_t num_bytes) -> int64_t {
      const int64_t number = calls++;
      if (number % 5 == 0) return -EINTR;
      if (number % 7 == 0) return -EAGAIN;
      // Half of the blocks, and at times a part of one, which is moved again.
      return number % 3 == 0 ? std::max(kBlock, num_bytes / 2 / kBlock * kBlock) : num_bytes;
    });
    AlignedMemory from(50 * kBlock), into(50 * kBlock);
    SpillFile file(folder.path(), 50 * kBlock, way, {from.bytes()});
    SCOPED_TRACE(file.text());
    fill(from.bytes(), 3);
    write(file, 0, from.bytes());
    read(file, 0, into.bytes());
    EXPECT_TRUE(is_same(from.bytes(), into.bytes()));
    EXPECT_GT(calls.load(), 26);
    disk::set_transfer_hook({});
  }
}

TEST(SpillFileTest, FaultsOfTheDriveAreNamedAndTheRestGoesOn) {
  const TempFolder folder;
  const Hooks hooks;
  struct Fault {
    std::string call;
    int64_t result;
    std::vector<std::string> said;
  };
  const std::vector<Fault> faults = {
      {"write", -EIO, {"E-STORAGE-IO", "cannot write", "offloaded states: byte 16384"}},
      {"write", -ENOSPC, {"E-STORAGE-NO-SPACE", "free, need 40.0 KiB", "hint: "}},
      {"write", 0, {"E-STORAGE-IO", "cannot write"}},
      {"write", -EAGAIN, {"E-STORAGE-IO", "cannot write"}},
      {"read", -EIO, {"E-STORAGE-IO", "cannot read", folder.path(), "byte 16384"}},
      {"read", 0, {"E-STORAGE-SHORT-READ", "byte 16384", "a file of 40960 bytes"}},
  };
  for (const SpillOptions& way : all_ways()) {
    AlignedMemory memory(10 * kBlock);
    fill(memory.bytes(), 1);
    SpillFile file(folder.path(), 10 * kBlock, way, {memory.bytes()});
    SCOPED_TRACE(file.text());
    for (const Fault& fault : faults) {
      // The second of three requests fails.
      std::atomic<int64_t> calls = 0;
      const bool fails_on = fault.result == -EAGAIN;
      disk::set_transfer_hook([&](std::string_view call, const std::string&, int64_t num_bytes) {
        if (call != fault.call) return num_bytes;
        const int64_t number = calls++;
        return number == 1 || (fails_on && number > 0) ? fault.result : num_bytes;
      });
      SpillOptions one = way;
      one.depth = 1;  // in order
      SpillFile ordered(folder.path(), 10 * kBlock, one);
      expect_error(ErrorKind::Storage, fault.said, [&] {
        Transfer transfer = fault.call == "write" ? ordered.start_write(0, memory.bytes())
                                                  : ordered.start_read(0, memory.bytes());
        ordered.wait(transfer);
      });
      disk::set_transfer_hook({});
      write(ordered, 0, memory.bytes());
    }
    // Whoever goes away with transfers under way is waited for.
    (void)file.start_write(0, memory.bytes());
  }
}

TEST(SpillFileTest, WhatTheSystemRefusesIsToldAndDoneAnotherWay) {
  const TempFolder folder;
  const Hooks hooks;
  const auto text_with = [&](const disk::Hook& hook) {
    disk::set_hook(hook);
    AlignedMemory memory(3 * kBlock), back(3 * kBlock);
    SpillFile file(folder.path(), 3 * kBlock, {}, {memory.bytes()});
    disk::set_hook({});
    fill(memory.bytes(), 5);
    write(file, 0, memory.bytes());
    read(file, 0, back.bytes());
    EXPECT_TRUE(is_same(memory.bytes(), back.bytes())) << file.text();
    return file.text();
  };
  EXPECT_THAT(text_with(failing("make_ring", EPERM)), HasSubstr("16 threads (io_uring: EPERM)"));
  EXPECT_THAT(text_with(failing("make_ring", ENOSYS)), HasSubstr("16 threads (io_uring: ENOSYS)"));
  EXPECT_THAT(text_with(failing("open_direct", EINVAL)),
              HasSubstr("through the page cache (direct I/O: EINVAL)"));
  // A file system without files that have no name.
  const auto named = [](std::string_view call, const std::string&) {
    return call == "open_direct" || call == "open_nameless" ? EOPNOTSUPP : 0;
  };
  EXPECT_THAT(text_with(named), Not(IsEmpty()));
  // One that cannot reserve space.
  EXPECT_THAT(text_with(failing("allocate", EOPNOTSUPP)), Not(IsEmpty()));
  EXPECT_THAT(folder.entries(), IsEmpty());
}

TEST(SpillFileTest, AFullDriveIsFoundWhenTheFileIsMade) {
  const TempFolder folder;
  const Hooks hooks;
  const auto make = [&](int64_t num_bytes) { const SpillFile file(folder.path(), num_bytes, {}); };
  const std::vector<std::string> said = {"E-STORAGE-NO-SPACE", folder.path(), " free, need 1.0 MiB", "hint:"};
  disk::set_hook(failing("allocate", ENOSPC));
  expect_error(ErrorKind::Storage, said, [&] { make(1 << 20); });
  disk::set_hook({});
  // More than there is, on a file system that reserves and on one that does not.
  const int64_t too_much = free_space(folder.path()) + (int64_t{1} << 40);
  expect_error(ErrorKind::Storage, {"E-STORAGE-NO-SPACE"}, [&] { make(too_much); });
  disk::set_hook(failing("allocate", EOPNOTSUPP));
  expect_error(ErrorKind::Storage, {"E-STORAGE-NO-SPACE", "need"}, [&] { make(too_much); });
  disk::set_hook({});
  {
    const testing::FileSizeLimit limit(1 << 19);
    expect_error(ErrorKind::Storage, {"E-STORAGE-TOO-LARGE", "need 1.0 MiB"}, [&] { make(1 << 20); });
    make(1 << 18);
  }
  expect_error(ErrorKind::Storage, {"E-STORAGE-NOT-FOUND"},
               [&] { const SpillFile file(folder / "none", kBlock, {}); });
  disk::set_hook(failing("open_direct", EROFS));
  expect_error(ErrorKind::Storage, {"E-STORAGE-READ-ONLY"}, [&] { make(kBlock); });
  EXPECT_THAT(folder.entries(), IsEmpty());
}

TEST(SpillFileTest, AKilledProcessLeavesNothing) {
  const TempFolder folder;
  for (const SpillOptions& way : all_ways()) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      AlignedMemory memory(64 * kBlock);
      SpillFile file(folder.path(), 64 * kBlock, way, {memory.bytes()});
      (void)file.start_write(0, memory.bytes());
      ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_THAT(folder.entries(), IsEmpty());
  }
}

}  // namespace
}  // namespace tessera::io
