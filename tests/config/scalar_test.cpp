#include "tessera/config/scalar.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace tessera::config {
namespace {

TEST(ScalarTest, ReadsBooleansOfBothYamlVersions) {
  for (const char* text : {"true", "True", "TRUE", "yes", "Yes", "on", "ON"})
    EXPECT_EQ(parse_bool(text), true) << text;
  for (const char* text : {"false", "False", "no", "NO", "off", "Off"})
    EXPECT_EQ(parse_bool(text), false) << text;
  for (const char* text : {"", "1", "0", "y", "n", "tRUE", "none"}) EXPECT_FALSE(parse_bool(text)) << text;
}

TEST(ScalarTest, ReadsDecimalNumbers) {
  EXPECT_EQ(parse_number("2e-5"), 2e-5);
  EXPECT_EQ(parse_number("1E3"), 1000.0);
  EXPECT_EQ(parse_number("+3"), 3.0);
  EXPECT_EQ(parse_number("-0.25"), -0.25);
  EXPECT_EQ(parse_number(".5"), 0.5);
  EXPECT_EQ(parse_number("5."), 5.0);
  EXPECT_EQ(parse_number("1_000_000"), 1e6);
  EXPECT_EQ(parse_number("0"), 0.0);
  EXPECT_TRUE(std::isnan(*parse_number(".nan")));
  EXPECT_TRUE(std::isinf(*parse_number("-.inf")));
  EXPECT_TRUE(std::isinf(*parse_number("1e999")));
  EXPECT_EQ(parse_number("1e-999"), 0.0);
}

TEST(ScalarTest, RefusesWhatIsNoDecimalNumber) {
  for (const char* text : {"", "-", ".", "e5", "1e", "1e+", "0x10", "010", "1:30", "1_", "_1", "1__0",
                           "1.2.3", "12k", "1 ", " 1", "--1", "+-1", "1e5.0"}) {
    EXPECT_FALSE(parse_number(text)) << text;
    EXPECT_EQ(parse_integer(text).status, IntegerStatus::NotANumber) << text;
  }
  EXPECT_FALSE(parse_number(std::string(100'000, '9')));
}

TEST(ScalarTest, TellsWholeFromBrokenAndTooLarge) {
  EXPECT_EQ(parse_integer("9223372036854775807").value, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(parse_integer("9223372036854775808").status, IntegerStatus::Overflow);
  EXPECT_EQ(parse_integer("-42").value, -42);
  EXPECT_EQ(parse_integer("2048.0").value, 2048);
  EXPECT_EQ(parse_integer("1e3").value, 1000);
  EXPECT_EQ(parse_integer("1e300").status, IntegerStatus::Overflow);
  EXPECT_EQ(parse_integer("2.5").status, IntegerStatus::NotWhole);
  EXPECT_EQ(parse_integer(".inf").status, IntegerStatus::NotWhole);
}

TEST(ScalarTest, ReadsSizes) {
  const std::pair<const char*, int64_t> cases[] = {
      {"6GB", 6'000'000'000}, {"6 GiB", int64_t{6} << 30}, {"1.5g", 1'500'000'000}, {"512MiB", 512 << 20},
      {"64kb", 64'000},       {"2T", 2'000'000'000'000},   {"1e9", 1'000'000'000},  {"17 B", 17}};
  for (const auto& [text, bytes] : cases) EXPECT_EQ(parse_bytes(text), bytes) << text;
  for (const char* text :
       {"", "B", "GB", "-1GB", "0", "0.5", "6XB", "6iB", "6 G B", "inf", "9e9TB", "nan GB"})
    EXPECT_FALSE(parse_bytes(text)) << text;
}

}  // namespace
}  // namespace tessera::config
