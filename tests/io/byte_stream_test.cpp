#include "tessera/io/byte_stream.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"

#include "tests/testing/compressed.h"
#include "tests/testing/temp_folder.h"

namespace tessera::io {
namespace {

using testing::gzipped;
using testing::zstd_frame;

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string read_all(const std::string& path, int64_t room) {
  const auto stream = open_byte_stream(path);
  std::string text, block(static_cast<size_t>(room), '\0');
  while (const int64_t size = stream->read(block.data(), room))
    text.append(block, 0, static_cast<size_t>(size));
  EXPECT_EQ(stream->read(block.data(), room), 0) << "the end stays";
  return text;
}

// Returns a text that is longer than the block that is read at a time, under any compression.
std::string long_text() {
  std::mt19937_64 random(7);
  std::string text;
  while (text.size() < (size_t{3} << 20)) text += std::to_string(random()) + (random() % 5 == 0 ? "\n" : " ");
  return text;
}

class ByteStreamTest : public ::testing::Test {
 protected:
  std::string message(const std::string& bytes) {
    const std::string path = folder_.write("a.bin", bytes);
    try {
      read_all(path, 4096);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Data) << error.what();
      return error.what();
    }
    return "";
  }

  testing::TempFolder folder_;
};

TEST_F(ByteStreamTest, GivesTheTextOfEveryFormat) {
  const std::string text = long_text();
  for (const std::string& bytes : {text, gzipped(text), zstd_frame(text)}) {
    const std::string path = folder_.write("any.name", bytes);
    for (const int64_t room : {int64_t{1} << 20, int64_t{4097}}) EXPECT_TRUE(read_all(path, room) == text);
  }
  for (const std::string& bytes : {std::string(), gzipped(""), zstd_frame("")})
    EXPECT_EQ(read_all(folder_.write("empty", bytes), 100), "");
}

TEST_F(ByteStreamTest, MembersAndFramesAreOneText) {
  const std::string empty = gzipped("");
  EXPECT_EQ(read_all(folder_.write("a", gzipped("one\n") + empty + gzipped("two\n")), 3), "one\ntwo\n");
  EXPECT_EQ(read_all(folder_.write("a", gzipped("one\n") + std::string(700, '\0')), 100), "one\n");
  // A skippable frame of 3 bytes between two others.
  const std::string skippable("\x50\x2A\x4D\x18\x03\x00\x00\x00xyz", 11);
  EXPECT_EQ(read_all(folder_.write("a", zstd_frame("one\n") + skippable + zstd_frame("two\n")), 3),
            "one\ntwo\n");
}

TEST_F(ByteStreamTest, WhatEndsEarlyNamesLineAndByte) {
  const std::string text = "first\nsecond\nthird\n";
  const std::string gzip = gzipped(text), zstd = zstd_frame(text);
  for (size_t size = 4; size < gzip.size(); ++size)
    EXPECT_THAT(message(gzip.substr(0, size)), HasSubstr("the gzip data end early")) << size;
  for (size_t size = 4; size < zstd.size(); ++size)
    EXPECT_THAT(message(zstd.substr(0, size)), HasSubstr("the Zstandard data end early")) << size;
  EXPECT_THAT(message(gzip + gzip.substr(0, gzip.size() - 3)),
              AllOf(HasSubstr("E-DATA-COMPRESSED"), HasSubstr("a.bin:7: "),
                    HasSubstr("byte offset " + std::to_string(2 * gzip.size() - 3))));
}

TEST_F(ByteStreamTest, DamageIsRefusedOrHarmless) {
  const std::string text = "first\nsecond\nthird\nfourth\n";
  for (const std::string& whole : {gzipped(text), zstd_frame(text)}) {
    int64_t refused = 0;
    for (size_t at = 4; at < whole.size(); ++at) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ 0x5A);
      refused += message(changed).empty() ? 0 : 1;
    }
    EXPECT_GT(refused, static_cast<int64_t>(whole.size()) / 2);
  }
  EXPECT_THAT(message(gzipped(text) + "junk behind it"), HasSubstr("gzip: "));
}

// A thousand megabytes of zeros, highly compressed, are read block by block.
TEST_F(ByteStreamTest, ABombIsReadInBlocks) {
  const std::string zeros(size_t{1} << 20, '0');
  std::string bomb;
  for (int i = 0; i < 200; ++i) bomb += zstd_frame(zeros);
  ASSERT_LT(bomb.size(), size_t{100} << 10);
  const auto stream = open_byte_stream(folder_.write("bomb.zst", bomb));
  std::string block(1 << 16, '\0');
  int64_t total = 0;
  while (const int64_t size = stream->read(block.data(), static_cast<int64_t>(block.size()))) total += size;
  EXPECT_EQ(total, 200 * (int64_t{1} << 20));
}

}  // namespace
}  // namespace tessera::io
