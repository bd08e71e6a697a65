#include "tessera/io/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/io/expect_error.h"
#include "tests/testing/skip.h"
#include "tests/testing/temp_folder.h"

namespace tessera::io {
namespace {

TEST(MappedFile, HasTheBytes) {
  const testing::TempFolder folder;
  MappedFile file(folder.write("a", "some bytes"));
  EXPECT_EQ(file.bytes(), "some bytes");
  ::unlink((folder / "a").c_str());
  MappedFile moved;
  moved = std::move(file);
  EXPECT_EQ(moved.bytes(), "some bytes") << "a removed file stays";
  EXPECT_TRUE(MappedFile(folder.write("empty", "")).bytes().empty());
  testing::expect_error(ErrorKind::Storage, {"none"}, [&] { MappedFile(folder / "none"); });
  testing::expect_error(ErrorKind::Storage, {folder.path()}, [&] { MappedFile(folder.path()); });
}

TEST(MappedFileDeathTest, AFileThatShrinksIsNamed) {
  if (testing::kHasSanitizer) GTEST_SKIP() << testing::skip::kSanitizer;
  const testing::TempFolder folder;
  const std::string path = folder.write("a", std::string(3 * 4096, 'x'));
  const MappedFile file(path);
  EXPECT_EXIT(
      {
        if (::truncate(path.c_str(), 100) != 0) ::_exit(1);
        const volatile char byte = file.bytes()[8192];
        ::_exit(byte);
      },
      ::testing::ExitedWithCode(6), "E-STORAGE-MAPPED.: .*/a: byte 8192 cannot be read");
}

}  // namespace
}  // namespace tessera::io
