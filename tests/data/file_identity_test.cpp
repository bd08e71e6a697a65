#include "tessera/data/file_identity.h"

#include <chrono>
#include <filesystem>

#include <gtest/gtest.h>

#include "tests/testing/temp_folder.h"

namespace tessera::data {
namespace {

TEST(FileIdentity, ChangesWithTheFile) {
  const testing::TempFolder folder;
  const std::string path = folder.write("a", "one");
  const std::string before = file_identity(path);
  EXPECT_EQ(file_identity(path), before);
  std::filesystem::remove(path);
  folder.write("b", "");
  folder.write("a", "two");
  EXPECT_NE(file_identity(path), before);
}

// The time of change cannot be set, so a file that a test has just written is not remembered.
TEST(ContentHash, IsOfTheContentAndNotRememberedTooSoon) {
  const testing::TempFolder folder;
  const std::string path = folder.write("a", "one"), notes = folder / "notes";
  const uint64_t one = content_hash(path, notes);
  folder.write("a", "two");
  EXPECT_NE(content_hash(path, notes), one);
  folder.write("a", "one");
  EXPECT_EQ(content_hash(path, notes), one);
  EXPECT_FALSE(std::filesystem::exists(notes));
}

// The test's own program was built long enough ago for its hash to be remembered.
TEST(ContentHash, IsRememberedByTheIdentity) {
  const testing::TempFolder folder;
  const std::string path = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::file_time_type built = std::filesystem::last_write_time(path);
  if (std::chrono::file_clock::now() - built < std::chrono::seconds(10)) return;
  const uint64_t hash = content_hash(path, folder.path());
  ASSERT_EQ(folder.entries().size(), 1U);
  EXPECT_EQ(content_hash(path, folder.path()), hash);
  // The second call took the hash from the note: a changed note changes the result.
  const std::string note = folder / folder.entries()[0];
  folder.write(folder.entries()[0], file_identity(path) + "\n5");
  EXPECT_EQ(content_hash(path, folder.path()), 5U);
  folder.write(folder.entries()[0], "another identity\n5");
  EXPECT_EQ(content_hash(path, folder.path()), hash);
  folder.write(folder.entries()[0], file_identity(path) + "\nx");
  EXPECT_EQ(content_hash(path, folder.path()), hash);
}

}  // namespace
}  // namespace tessera::data
