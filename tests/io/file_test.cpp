#include "tessera/io/file.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tessera/io/gguf_writer.h"
#include "tessera/io/leftovers.h"

#include "tests/io/expect_error.h"
#include "tests/io/file_size_limit.h"
#include "tests/testing/temp_folder.h"

namespace tessera::io {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using ::testing::IsEmpty;
using testing::TempFolder;

TEST(FileTest, ReadsRangesExactly) {
  const TempFolder folder;
  write_file_atomic(folder / "a", "0123456789");
  const File file = File::open(folder / "a");
  EXPECT_EQ(file.size(), 10);
  std::string part(4, '?');
  file.read_at(3, part.data(), 4);
  EXPECT_EQ(part, "3456");
  file.read_at(10, part.data(), 0);
  EXPECT_EQ(part, "3456");
}

TEST(FileTest, ReadPastTheEndNamesTheByte) {
  const TempFolder folder;
  write_file_atomic(folder / "a", "0123456789");
  const File file = File::open(folder / "a");
  std::string part(4, '?');
  expect_error(ErrorKind::Storage, {"E-STORAGE-SHORT-READ", folder / "a: byte 10", "2 more bytes"},
               [&] { file.read_at(8, part.data(), 4); });
}

TEST(FileTest, FileThatShrinksWhileOpenIsAnError) {
  const TempFolder folder;
  write_file_atomic(folder / "a", std::string(1000, 'x'));
  const File file = File::open(folder / "a");
  std::filesystem::resize_file(folder / "a", 100);
  std::string part(500, '?');
  expect_error(ErrorKind::Storage, {"E-STORAGE-SHORT-READ", "byte 100", "1000 bytes when it was opened"},
               [&] { file.read_at(0, part.data(), 500); });
}

TEST(FileTest, OpenErrorsNameTheCause) {
  const TempFolder folder;
  expect_error(ErrorKind::Storage, {"E-STORAGE-NOT-FOUND", folder / "none"},
               [&] { File::open(folder / "none"); });
  expect_error(ErrorKind::Storage, {"E-STORAGE-IS-A-DIRECTORY"}, [&] { File::open(folder.path()); });
  write_file_atomic(folder / "a", "x");
  expect_error(ErrorKind::Storage, {"E-STORAGE-NOT-A-DIRECTORY"}, [&] { File::open(folder / "a/b"); });
  std::filesystem::create_symlink("loop", folder / "loop");
  expect_error(ErrorKind::Storage, {"E-STORAGE-LINK-LOOP"}, [&] { File::open(folder / "loop"); });
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_error(ErrorKind::Storage, {"E-STORAGE-NOT-A-FILE", "got a pipe"},
               [&] { File::open(folder / "pipe"); });
  expect_error(ErrorKind::Storage, {"E-STORAGE-NOT-A-FILE", "/dev/zero", "got a device"},
               [&] { File::open("/dev/zero"); });
  std::filesystem::create_symlink("/dev/zero", folder / "zero");
  expect_error(ErrorKind::Storage, {"E-STORAGE-NOT-A-FILE"}, [&] { read_file(folder / "zero", 100); });
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (folder / "s").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  expect_error(ErrorKind::Storage, {"E-STORAGE-NOT-A-FILE", "got a socket"},
               [&] { File::open(folder / "s"); });
  ::close(socket);
}

TEST(FileTest, StorageErrorsHaveNamesAndExitCode6) {
  const std::vector<std::pair<int, std::string>> cases = {
      {ENOSPC, "NO-SPACE"},       {EDQUOT, "NO-SPACE"}, {EACCES, "PERMISSION"},
      {EPERM, "PERMISSION"},      {EROFS, "READ-ONLY"}, {EIO, "IO"},
      {ENOENT, "NOT-FOUND"},      {EFBIG, "TOO-LARGE"}, {ELOOP, "LINK-LOOP"},
      {EMFILE, "TOO-MANY-FILES"}, {EEXIST, "EXISTS"},   {EBADF, "SYSTEM"}};
  for (const auto& [number, name] : cases) {
    const Error error = storage_error(number, "cannot write", "/x");
    EXPECT_EQ(error.code(), "E-STORAGE-" + name);
    EXPECT_EQ(exit_code(error.kind()), 6);
  }
}

TEST(FileTest, ReadFileHasACap) {
  const TempFolder folder;
  write_file_atomic(folder / "a", "0123456789");
  EXPECT_EQ(read_file(folder / "a", 10), "0123456789");
  expect_error(ErrorKind::Storage, {"E-STORAGE-TOO-LARGE", "got 10 B"}, [&] { read_file(folder / "a", 9); });
  std::filesystem::resize_file(folder / "a", int64_t{1} << 40);  // sparse; reading all of it would show
  expect_error(ErrorKind::Storage, {"E-STORAGE-TOO-LARGE"}, [&] { read_file(folder / "a", 1 << 20); });
}

TEST(AtomicFileTest, ReplacesAtCommitOnly) {
  const TempFolder folder;
  write_file_atomic(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    file.append("new");
    file.append(" text");
    EXPECT_EQ(read_file(folder / "a", 100), "old");
    file.commit();
  }
  EXPECT_EQ(read_file(folder / "a", 100), "new text");
  EXPECT_THAT(folder.entries(), ElementsAre("a"));
}

TEST(AtomicFileTest, WithoutCommitNothingStays) {
  const TempFolder folder;
  {
    AtomicFile file(folder / "a");
    file.append("new");
    EXPECT_TRUE(exists(file.temporary_path()));
  }
  EXPECT_THAT(folder.entries(), IsEmpty());
}

TEST(AtomicFileTest, TemporariesOfKilledProcessesAreRemovedAndThoseOfLivingOnesStay) {
  const TempFolder folder;
  const std::string path = folder / "a.gguf";
  AtomicFile living(path);
  const pid_t child = fork();
  if (child == 0) {
    const AtomicFile killed(path);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  folder.write("a.gguf.tmp.notes", "");
  folder.write("b.gguf.tmp.1-0", "");
  EXPECT_EQ(temporaries_of(path).size(), 2U);
  GgufWriter(path, {}, {}).commit();
  EXPECT_THAT(temporaries_of(path), ElementsAre(living.temporary_path()));
  living.append("whole");
  living.commit();
  EXPECT_EQ(read_file(path, 100), "whole");
  EXPECT_THAT(folder.entries(), ElementsAre("a.gguf", "a.gguf.tmp.notes", "b.gguf.tmp.1-0"));
}

TEST(AtomicFileTest, WritesInAnyOrderFromSeveralThreads) {
  const TempFolder folder;
  AtomicFile file(folder / "a");
  file.reserve(4 * 1000);
  std::vector<std::thread> threads;
  for (int i = 3; i >= 0; --i) {
    threads.emplace_back([&, i] {
      const std::string block(1000, static_cast<char>('a' + i));
      file.write_at(i * 1000, block.data(), 1000);
    });
  }
  for (std::thread& thread : threads) thread.join();
  file.commit();
  EXPECT_EQ(read_file(folder / "a", 10000), std::string(1000, 'a') + std::string(1000, 'b') +
                                                std::string(1000, 'c') + std::string(1000, 'd'));
}

TEST(AtomicFileTest, KeepsThePermissionsOfTheOldFile) {
  const TempFolder folder;
  write_file_atomic(folder / "a", "old");
  std::filesystem::permissions(folder / "a", std::filesystem::perms{0640});
  write_file_atomic(folder / "a", "new");
  EXPECT_EQ(std::filesystem::status(folder / "a").permissions(), std::filesystem::perms{0640});
}

TEST(AtomicFileTest, FullDiskIsFoundAtReserve) {
  const TempFolder folder;
  write_file_atomic(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    // The size is beyond the free space, and beyond the largest file of common file systems.
    const int64_t too_much = int64_t{1} << 62;
    expect_error(ErrorKind::Storage, {folder / "a", "reserve"}, [&] { file.reserve(too_much); });
  }
  EXPECT_EQ(read_file(folder / "a", 100), "old");
  EXPECT_THAT(folder.entries(), ElementsAre("a"));
}

TEST(AtomicFileTest, WriteThatFailsHalfwayLeavesTheOldFile) {
  const TempFolder folder;
  write_file_atomic(folder / "a", "old");
  {
    const testing::FileSizeLimit limit(4096);
    expect_error(ErrorKind::Storage, {"E-STORAGE-TOO-LARGE", folder / "a: byte 4096"},
                 [&] { write_file_atomic(folder / "a", std::string(10000, 'x')); });
  }
  EXPECT_EQ(read_file(folder / "a", 100), "old");
  EXPECT_THAT(folder.entries(), ElementsAre("a"));
}

TEST(AtomicFileTest, RefusesFolderMissingParentAndLostTemporary) {
  const TempFolder folder;
  make_directories(folder / "d");
  expect_error(ErrorKind::Storage, {"E-STORAGE-IS-A-DIRECTORY"}, [&] { AtomicFile file(folder / "d"); });
  expect_error(ErrorKind::Storage, {"E-STORAGE-NOT-FOUND"}, [&] { AtomicFile file(folder / "no/a"); });
  AtomicFile file(folder / "a");
  std::filesystem::remove(file.temporary_path());
  expect_error(ErrorKind::Storage, {"E-STORAGE-NOT-FOUND", "rename"}, [&] { file.commit(); });
  EXPECT_FALSE(exists(folder / "a"));
}

TEST(AtomicFileTest, RefusesDevicesAndPipes) {
  const TempFolder folder;
  const std::string fifo = folder / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {std::string("/dev/null"), fifo}) {
    expect_error(ErrorKind::Storage, {"E-STORAGE-NOT-A-FILE", path}, [&] { write_file_atomic(path, "x"); });
  }
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_TRUE(std::filesystem::is_fifo(fifo));
  EXPECT_THAT(folder.entries(), ElementsAre("fifo"));
}

TEST(AtomicFileTest, ReadOnlyFolderIsPermission) {
  if (::geteuid() == 0) {
    // Permission bits do not stop root, but /proc does.
    expect_error(ErrorKind::Storage, {"E-STORAGE-"}, [] { AtomicFile file("/proc/tessera"); });
    return;
  }
  const TempFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms{0500});
  expect_error(ErrorKind::Storage, {"E-STORAGE-PERMISSION"}, [&] { AtomicFile file(folder / "a"); });
  std::filesystem::permissions(folder.path(), std::filesystem::perms{0700});
}

TEST(DirectoriesTest, MakesAllPartsAndNamesTheOneInTheWay) {
  const TempFolder folder;
  make_directories(folder / "a/b//c/");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b/c"));
  make_directories(folder / "a/b/c");
  write_file_atomic(folder / "a/f", "");
  expect_error(ErrorKind::Storage, {"E-STORAGE-NOT-A-DIRECTORY", folder / "a/f: "},
               [&] { make_directories(folder / "a/f/g/h"); });
  expect_error(ErrorKind::Storage, {"E-STORAGE-"}, [] { make_directories("/proc/tessera/x"); });
}

TEST(DirectoriesTest, RemoveFileAllowsAMissingOne) {
  const TempFolder folder;
  write_file_atomic(folder / "a", "");
  remove_file(folder / "a");
  EXPECT_FALSE(exists(folder / "a"));
  EXPECT_NO_THROW(remove_file(folder / "a"));
  expect_error(ErrorKind::Storage, {"E-STORAGE-"}, [&] { remove_file(folder.path()); });
}

TEST(DirectoriesTest, FreeSpaceOfAPathThatIsYetToBe) {
  const TempFolder folder;
  EXPECT_GT(free_space(folder.path()), 0);
  EXPECT_GT(free_space(folder / "not/yet/there"), 0);
}

TEST(PathTest, JoinAndParent) {
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(join_path("", "b"), "b");
  EXPECT_EQ(join_path("a", "/b"), "/b");
  EXPECT_EQ(parent_path("a/b"), "a");
  EXPECT_EQ(parent_path("a//b/"), "a");
  EXPECT_EQ(parent_path("a"), ".");
  EXPECT_EQ(parent_path("/a"), "/");
  EXPECT_EQ(parent_path("/"), "/");
  EXPECT_EQ(parent_path(""), ".");
}

}  // namespace
}  // namespace tessera::io
