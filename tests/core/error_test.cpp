#include "tessera/core/error.h"

#include <gtest/gtest.h>

#include "tessera/core/terminal_text.h"

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

TEST(ErrorTest, NothingInItActsOnATerminal) {
  const Error error = Error(ErrorKind::Data, "X", "a\u009b2J").in("\u202etxt.exe").got("\xff\u00e9\u200e");
  EXPECT_STREQ(error.what(), "error[E-DATA-X]: \\u202etxt.exe: a\\u009b2J; got \\xff\u00e9\\u200e");
  const std::string cut = Error(ErrorKind::Data, "X", std::string(1999, 'a') + "\u00e9\u00e9").what();
  EXPECT_TRUE(cut.ends_with("aa...")) << "the cut is not inside a character";
}

TEST(TerminalText, KeepsLinesWhereItIsAskedTo) {
  for (const uint32_t c :
       {0x00u, 0x1bu, 0x7fu, 0x80u, 0x9fu, 0x61cu, 0x200eu, 0x202au, 0x202eu, 0x2066u, 0x2069u})
    EXPECT_TRUE(acts_on_terminal(c)) << c;
  for (const uint32_t c : {0x20u, 0x7eu, 0xa0u, 0x200du, 0x202fu, 0x2065u, 0x206au, 0x1f600u})
    EXPECT_FALSE(acts_on_terminal(c)) << c;
  const std::string text = "a\tb\n\x1b[2J\r\u0085\xc2";
  EXPECT_EQ(terminal_text(text), "a\\x09b\\n\\x1b[2J\\x0d\\u0085\\xc2");
  EXPECT_EQ(terminal_text(text, LineBreaks::Keep), "a\tb\n\\x1b[2J\\x0d\\u0085\\xc2");
  // A pipe, as any descriptor that is no terminal, gets the bytes.
  EXPECT_EQ(text_for(-1, text), text);
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
