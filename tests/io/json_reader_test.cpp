#include "tessera/io/json_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/io/file.h"

#include "tests/io/expect_error.h"
#include "tests/testing/temp_folder.h"

namespace tessera::io {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using ::testing::IsEmpty;
using testing::TempFolder;

class JsonReaderTest : public ::testing::Test {
 protected:
  JsonReader open(const std::string& text) {
    write_file_atomic(path_, text);
    return JsonReader::open(path_);
  }
  // Expects that the call fails at `key` of the file.
  template <typename Call>
  void expect_problem(const std::string& key, std::vector<std::string> parts, Call call) {
    parts.push_back("E-MODEL-CONFIG");
    parts.push_back(path_ + ": key '" + key + "'");
    expect_error(ErrorKind::Model, parts, call);
  }

  TempFolder folder_;
  std::string path_ = folder_ / "config.json";
};

TEST_F(JsonReaderTest, ReadsValuesAndFallbacks) {
  const JsonReader reader = open(
      R"({"n": 3, "x": 1.5, "t": "a", "b": true, "z": null, "l": [1, 2], "s": ["a", "b"], "o": {"n": 4}})");
  EXPECT_EQ(reader.integer("n", 0, 3), 3);
  EXPECT_EQ(reader.integer("z", 0, 3, 2), 2);
  EXPECT_EQ(reader.optional_integer("z", 0, 3), std::nullopt);
  EXPECT_EQ(reader.optional_integer("n", 0, 3), 3);
  EXPECT_EQ(reader.number("x", 0, 2), 1.5);
  EXPECT_EQ(reader.number("n", 0, 5), 3.0);
  EXPECT_EQ(reader.number("none", 0, 5, 2.5), 2.5);
  EXPECT_EQ(reader.text("t"), "a");
  EXPECT_EQ(reader.text("none", "d"), "d");
  EXPECT_TRUE(reader.boolean("b", false));
  EXPECT_TRUE(reader.boolean("none", true));
  EXPECT_THAT(reader.integers("l", 0, 9), ElementsAre(1, 2));
  EXPECT_THAT(reader.integers("n", 0, 9), ElementsAre(3));
  EXPECT_THAT(reader.integers("none", 0, 9), IsEmpty());
  EXPECT_THAT(reader.texts("s"), ElementsAre("a", "b"));
  EXPECT_EQ(reader.object("o")->integer("n", 0, 9), 4);
  EXPECT_FALSE(reader.object("z"));
  EXPECT_FALSE(reader.has("z"));
  EXPECT_TRUE(reader.is_text("t"));
  EXPECT_FALSE(reader.is_text("n"));
}

TEST_F(JsonReaderTest, EmptyValues) {
  const JsonReader reader =
      open(R"({"a": [], "b": {}, "c": "", "d": false, "e": null, "f": [0], "g": true, "h": 0, "i": "x"})");
  for (const char* key : {"a", "b", "c", "d", "e", "none"}) EXPECT_TRUE(reader.is_empty(key)) << key;
  for (const char* key : {"f", "g", "h", "i"}) EXPECT_FALSE(reader.is_empty(key)) << key;
}

TEST_F(JsonReaderTest, ProblemsNameFileKeyAndValue) {
  const JsonReader reader =
      open(R"({"n": 3, "big": 18446744073709551615, "x": 1e308, "t": "a", "l": [1, "b"], "o": {"n": "4"}})");
  expect_problem("none", {"missing key"}, [&] { reader.integer("none", 0, 3); });
  expect_problem("none", {"missing key"}, [&] { reader.text("none"); });
  expect_problem("n", {"got 3", "need an integer from 0 to 2"}, [&] { reader.integer("n", 0, 2); });
  expect_problem("n", {"from 4 to 9"}, [&] { reader.integer("n", 4, 9); });
  expect_problem("big", {"got 18446744073709551615"}, [&] { reader.integer("big", -5, INT64_MAX); });
  expect_problem("x", {"an integer"}, [&] { reader.integer("x", 0, INT64_MAX); });
  expect_problem("t", {"got \"a\""}, [&] { reader.number("t", 0, 1); });
  expect_problem("x", {"a number from 0 to 1"}, [&] { reader.number("x", 0, 1); });
  expect_problem("n", {"a string"}, [&] { reader.text("n"); });
  expect_problem("n", {"true or false"}, [&] { reader.boolean("n", true); });
  expect_problem("l", {"got \"b\""}, [&] { reader.integers("l", 0, 9); });
  expect_problem("l", {"got 1", "a string"}, [&] { reader.texts("l"); });
  expect_problem("t", {"a list of strings"}, [&] { reader.texts("t"); });
  expect_problem("n", {"an object"}, [&] { reader.object("n"); });
  expect_problem("o.n", {"got \"4\""}, [&] { reader.object("o")->integer("n", 0, 9); });
}

TEST_F(JsonReaderTest, FilesThatAreNoObject) {
  expect_error(ErrorKind::Model, {"not a JSON object", path_}, [&] { open("[1]"); });
  expect_error(ErrorKind::Model, {"DUPLICATE-KEY", path_}, [&] { open(R"({"a": 1, "a": 2})"); });
  expect_error(ErrorKind::Model, {"malformed", path_}, [&] { open("{"); });
  expect_error(ErrorKind::Model, {"too large", path_}, [&] { open(std::string((1 << 20) + 1, ' ')); });
  expect_error(ErrorKind::Model, {"E-MODEL-NO-FILE", "none.json"},
               [&] { JsonReader::open(folder_ / "none.json"); });
}

}  // namespace
}  // namespace tessera::io
