#include "tessera/core/error.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(ErrorTest, NamesPlaceValueAndHint) {
  const Error error = Error(ErrorKind::Config, "UNKNOWN-KEY", "unknown key 'sead'")
                          .at("r.yaml", 3, 5)
                          .got("sead")
                          .need("a known key")
                          .hint("did you mean 'seed'?");
  EXPECT_STREQ(error.what(),
               "error[E-CONFIG-UNKNOWN-KEY]: r.yaml:3:5: unknown key 'sead'; got sead, need a known key. "
               "hint: did you mean 'seed'?");
  EXPECT_EQ(exit_code(error.kind()), 2);
  EXPECT_TRUE(error.message().starts_with("r.yaml:3:5: unknown key")) << error.message();
  EXPECT_EQ(Error(error).about("seed").key(), "seed");
  EXPECT_STREQ(Error(error).about("seed").what(), error.what());
}

TEST(ErrorTest, StaysOnOneLine) {
  const Error error(ErrorKind::Data, "X", "a\nb\x01");
  EXPECT_STREQ(error.what(), "error[E-DATA-X]: a\\nb\\x01");
}

TEST(ErrorTest, ExitCodesFollowTheTable) {
  EXPECT_EQ(exit_code(ErrorKind::Data), 3);
  EXPECT_EQ(exit_code(ErrorKind::Model), 4);
  EXPECT_EQ(exit_code(ErrorKind::Checkpoint), 5);
  EXPECT_EQ(exit_code(ErrorKind::Storage), 6);
  EXPECT_EQ(exit_code(ErrorKind::Numerics), 7);
  EXPECT_EQ(exit_code(ErrorKind::Hang), 8);
  EXPECT_EQ(exit_code(ErrorKind::Peer), 9);
  EXPECT_EQ(exit_code(ErrorKind::Memory), 10);
}

}  // namespace
}  // namespace tessera
