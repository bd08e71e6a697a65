#include "tessera/io/json_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/io/file.h"

#include "tests/io/expect_error.h"
#include "tests/testing/temp_folder.h"

namespace tessera::io {
namespace {

using testing::expect_error;
using testing::TempFolder;

void expect_refused(const std::string& text, const std::vector<std::string>& parts,
                    const JsonLimits& limits = {}) {
  SCOPED_TRACE(text.substr(0, 100));
  expect_error(ErrorKind::Data, parts, [&] { parse_json(text, "f.json", ErrorKind::Data, limits); });
}

TEST(JsonFileTest, ReadsWhatIsWellFormed) {
  const nlohmann::json value =
      parse_json(" {\"a\": [1, -2, 1.5, null, true, \"\\u00e9\"], \"b\": {\"a\": {}}}\n", "f.json");
  EXPECT_EQ(value.at("a").size(), 6u);
  EXPECT_EQ(value.at("a").at(5), "é");
  EXPECT_EQ(parse_json("3", "f.json"), 3);
}

TEST(JsonFileTest, MalformedTextNamesTheByte) {
  expect_refused("{\"a\": 1,}", {"E-DATA-JSON", "f.json: byte 8", "malformed"});
  expect_refused("", {"malformed"});
  expect_refused("{} {}", {"f.json: byte 3"});
  expect_refused("// c\n{}", {"malformed"});
  expect_refused("{\"a\": NaN}", {"malformed"});
  expect_refused("[1e999]", {"malformed"});
  expect_refused("\"\\ud800\"", {"malformed"});
  expect_refused("[\"\xc3(\"]", {"f.json: byte 2", "UTF-8"});
  expect_refused("\xEF\xBB\xBF{}", {"f.json: byte 0", "byte-order mark"});
  expect_refused(std::string("{}\0x", 4), {"f.json: byte 2", "NUL"});
}

TEST(JsonFileTest, DuplicateKeysAreNamedWithTheirPath) {
  expect_refused(R"({"a": 1, "a": 1})", {"E-DATA-JSON-DUPLICATE-KEY", "key 'a'"});
  expect_refused(R"({"a": {"b": [{"c": 1, "\u0063": 2}]}})", {"key 'a.b.c'"});
  EXPECT_NO_THROW(parse_json(R"([{"a": 1}, {"a": 2}])", "f.json"));
}

TEST(JsonFileTest, DepthIsLimited) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(parse_json(nested(64), "f.json"));
  expect_refused(nested(65), {"E-DATA-JSON-DEPTH", "at most 64"});
  expect_refused(std::string(1'000'000, '['), {"E-DATA-JSON-DEPTH"});
  expect_refused(nested(3), {"E-DATA-JSON-DEPTH"}, {.max_depth = 2});
}

TEST(JsonFileTest, FilesAreCapped) {
  const TempFolder folder;
  write_file_atomic(folder / "a.json", "[1, 2]");
  EXPECT_EQ(read_json_file(folder / "a.json").size(), 2u);
  expect_error(ErrorKind::Model, {"E-MODEL-JSON-SIZE", folder / "a.json", "got 6 B"},
               [&] { read_json_file(folder / "a.json", ErrorKind::Model, {.max_bytes = 5}); });
  expect_error(ErrorKind::Storage, {"E-STORAGE-NOT-FOUND"}, [&] { read_json_file(folder / "b.json"); });
}

}  // namespace
}  // namespace tessera::io
