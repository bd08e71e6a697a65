#include "tessera/core/environment.h"

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"

#include "tests/testing/paths.h"

namespace tessera::environment {
namespace {

using ::testing::HasSubstr;

// Returns the message of the E-CONFIG-ENVIRONMENT error that the action throws.
template <typename Action>
std::string refusal(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-CONFIG-ENVIRONMENT");
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

class EnvironmentTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : {"TESSERA_BIND", "TESSERA_ISA", "TESSERA_START_TIMEOUT", "OMP_DYNAMIC", "TMPDIR"})
      ::unsetenv(name);
  }
};

TEST_F(EnvironmentTest, WhatIsNotSetOrEmptyIsNothing) {
  ::unsetenv("TESSERA_BIND");
  EXPECT_EQ(get("TESSERA_BIND"), std::nullopt);
  EXPECT_EQ(get_flag("TESSERA_BIND"), std::nullopt);
  ::setenv("TESSERA_BIND", "", 1);
  EXPECT_EQ(get_flag("TESSERA_BIND"), std::nullopt);
  EXPECT_EQ(get_seconds("TESSERA_START_TIMEOUT"), std::nullopt);
}

TEST_F(EnvironmentTest, ValuesOfTheTable) {
  ::setenv("TESSERA_BIND", "0", 1);
  EXPECT_EQ(get_flag("TESSERA_BIND"), false);
  ::setenv("TESSERA_BIND", "1", 1);
  EXPECT_EQ(get_flag("TESSERA_BIND"), true);
  ::setenv("TESSERA_START_TIMEOUT", "1.5", 1);
  EXPECT_EQ(get_seconds("TESSERA_START_TIMEOUT"), 1.5);
  EXPECT_NO_THROW(check());
}

TEST_F(EnvironmentTest, OthersAreRefusedInItsWords) {
  ::setenv("TESSERA_BIND", "yes", 1);
  for (const auto& text : {refusal([] { get("TESSERA_BIND"); }), refusal([] { check(); })}) {
    EXPECT_THAT(text, HasSubstr("TESSERA_BIND"));
    EXPECT_THAT(text, HasSubstr("got 'yes', need 0 or 1"));
    EXPECT_THAT(text, HasSubstr("tessera help environment"));
  }
  ::setenv("TESSERA_BIND", "1", 1);
  ::setenv("TESSERA_ISA", "sse", 1);
  EXPECT_THAT(refusal([] { check(); }), HasSubstr("got 'sse', need baseline, avx2, avx512 or amx"));
  ::unsetenv("TESSERA_ISA");
  for (const char* wrong : {"soon", "0", "-1", "inf", "nan", "5 s"}) {
    ::setenv("TESSERA_START_TIMEOUT", wrong, 1);
    EXPECT_THAT(refusal([] { check(); }), HasSubstr("need seconds, above 0")) << wrong;
  }
}

TEST_F(EnvironmentTest, IsSetWithTheUsersWordFirst) {
  ::setenv("TMPDIR", "/of/the/user", 1);
  set_default("TMPDIR", "/ours");
  EXPECT_EQ(get("TMPDIR"), "/of/the/user");
  set("TMPDIR", "/ours");
  EXPECT_EQ(get("TMPDIR"), "/ours");
  unset("TMPDIR");
  set_default("TMPDIR", "/default");
  EXPECT_EQ(get("TMPDIR"), "/default");
}

TEST_F(EnvironmentTest, OnlyNamesOfTheTable) {
  ::setenv("OMP_DYNAMIC", "true", 1);
  EXPECT_EQ(get("OMP_DYNAMIC"), "true") << "by the row OMP_*";
  EXPECT_THROW(get("TESSERA_NO_SUCH_VARIABLE"), Error);
  EXPECT_THROW(set("NO_SUCH_VARIABLE", "1"), Error);
}

// A row for fewer names must stand before one for more names, or it would never be found.
TEST_F(EnvironmentTest, RowsAreReachable) {
  std::set<std::string_view> families;
  for (const Variable& variable : variables()) {
    for (const std::string_view family : families)
      EXPECT_FALSE(variable.name.starts_with(family)) << variable.name;
    if (variable.name.ends_with('*')) families.insert(variable.name.substr(0, variable.name.size() - 1));
  }
}

TEST_F(EnvironmentTest, ThePageShowsTheTable) {
  std::ifstream file(testing::source_folder() + "/docs/environment.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  std::ostringstream table;
  table << "| variable | values | if not set | meaning |\n|---|---|---|---|\n";
  for (const Variable& variable : variables()) {
    table << "| `" << variable.name << "` | " << variable.values_text() << " | " << variable.otherwise
          << " | " << variable.meaning << " |\n";
  }
  EXPECT_NE(page.find(table.str() + "\n"), std::string::npos) << "docs/environment.md needs this table:\n"
                                                              << table.str();
}

}  // namespace
}  // namespace tessera::environment
