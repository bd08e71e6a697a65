#include "tessera/io/log_file.h"

#include <cerrno>

#include <gtest/gtest.h>

#include "tessera/io/disk_calls.h"
#include "tessera/io/file.h"

#include "tests/io/expect_error.h"
#include "tests/io/file_size_limit.h"
#include "tests/testing/temp_folder.h"

namespace tessera::io {
namespace {

using testing::TempFolder;

std::string text_of(const std::string& path) { return read_file(path, 1 << 20); }

TEST(LogFile, StartsAnewAndIsReadableAtOnce) {
  const TempFolder folder;
  const std::string path = folder.write("log", "of an earlier run\n");
  LogFile log(path);
  EXPECT_TRUE(log.append("one\n"));
  EXPECT_EQ(text_of(path), "one\n");
  EXPECT_TRUE(log.append("two\n"));
  EXPECT_EQ(text_of(path), "one\ntwo\n");
}

// The kernel writes the part of a record that fits, as a full disk does.
TEST(LogFile, HoldsWholeRecordsWhenTheDiskIsFull) {
  const TempFolder folder;
  LogFile log(folder / "log");
  EXPECT_TRUE(log.append("0123456789\n"));
  {
    const testing::FileSizeLimit limit(15);
    EXPECT_FALSE(log.append("abcdefghij\n"));
    EXPECT_FALSE(log.append("abcdefghij\n"));
  }
  EXPECT_EQ(text_of(folder / "log"), "0123456789\n");
  EXPECT_TRUE(log.append("space again\n"));
  EXPECT_EQ(text_of(folder / "log"), "0123456789\nspace again\n");
}

TEST(LogFile, CutsOffLaterWhatItCouldNotCutOffAtOnce) {
  const TempFolder folder;
  LogFile log(folder / "log");
  EXPECT_TRUE(log.append("0123456789\n"));
  {
    const testing::FileSizeLimit limit(15);
    disk::set_hook([](std::string_view call, const std::string&) { return call == "truncate" ? EIO : 0; });
    EXPECT_FALSE(log.append("abcdefghij\n"));
    disk::set_hook(nullptr);
  }
  EXPECT_TRUE(log.append("next\n"));
  EXPECT_EQ(text_of(folder / "log"), "0123456789\nnext\n");
}

TEST(LogFile, GoesOnBehindOldRecordsAndLocksThem) {
  const TempFolder folder;
  const std::string path = folder.write("log", "one\npart");
  LogFile log(path, OldRecords::Kept);
  EXPECT_EQ(log.size(), 8);
  log.cut(4);
  EXPECT_TRUE(log.append("two\n"));
  EXPECT_EQ(text_of(path), "one\ntwo\n");
  testing::expect_error(ErrorKind::Config, {"E-CONFIG-OUTPUT-LOCKED", path},
                        [&] { const LogFile other(path, OldRecords::Kept); });
}

TEST(LogFile, AFolderThatIsNotThereIsAStorageError) {
  const TempFolder folder;
  try {
    const LogFile log(folder / "none/log");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-STORAGE-NOT-FOUND");
  }
}

}  // namespace
}  // namespace tessera::io
