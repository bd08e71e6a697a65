#include "tessera/report/metrics_piece.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "tessera/core/error.h"

#include "tests/testing/temp_folder.h"

namespace tessera::report {
namespace {

using tessera::testing::TempFolder;

TEST(MetricsPiece, WholeLinesAfterAPlace) {
  const std::string long_line(30, 'x');
  struct Case {
    const char* what;
    std::string before, after;  // the file when it is read first, in one piece, and then
    int64_t begin;              // of the second piece
    std::string lines;
    int64_t max_bytes = 1000;
  };
  const Case cases[] = {
      {"an empty file", "", "", 0, ""},
      {"a file that begins", "", "{1}\n", 0, "{1}\n"},
      {"half a line", "{1}\n{2", "{1}\n{2", 4, ""},
      {"a half line that is ended", "{1}\n{2", "{1}\n{2}\n{3", 4, "{2}\n"},
      {"nothing new", "{1}\n", "{1}\n", 4, ""},
      {"other bytes of the same size", "{1}\n", "{4}\n", 0, "{4}\n"},
      {"another run that has written more", "{1}\n", "{7}\n{8}\n", 0, "{7}\n{8}\n"},
      {"another run that has written less", "{1}\n{2}\n", "{1}\n", 0, "{1}\n"},
      {"a run that went back and on", "{1}\n{2}\n", "{1}\n{3}\n{4}\n", 0, "{1}\n{3}\n{4}\n"},
      {"more than a piece", "{1}\n", "{1}\n{2}\n{3}\n{4}\n", 4, "{2}\n{3}\n", 10},
      {"a line longer than a piece", "{1}\n", "{1}\n" + long_line + "\n{2}\n", 4, "", 10},
      {"an unended line longer than a piece", "{1}\n", "{1}\n" + long_line, 4, "", 10},
  };
  const TempFolder here;
  for (const Case& each : cases) {
    const std::string path = here.write("metrics.jsonl", each.before);
    const MetricsPlace place = read_metrics_piece(path, {}).next;
    here.write("metrics.jsonl", each.after);
    const MetricsPiece piece = read_metrics_piece(path, place, each.max_bytes);
    EXPECT_EQ(piece.begin, each.begin) << each.what;
    EXPECT_EQ(piece.lines, each.lines) << each.what;
    EXPECT_EQ(piece.size, std::ssize(each.after)) << each.what;
  }
}

TEST(MetricsPiece, PiecesTogetherAreTheFileWithoutItsLongLines) {
  const TempFolder here;
  std::string text, wanted;
  for (int i = 0; i < 200; ++i) text += "{\"step\":" + std::to_string(i) + "}\n";
  wanted = text;
  text += std::string(500, 'x') + "\n{\"step\":200}\n";
  const std::string path = here.write("metrics.jsonl", text);
  std::string read;
  MetricsPlace place;
  for (int i = 0; i < 1000 && place.offset < std::ssize(text); ++i) {
    const MetricsPiece piece = read_metrics_piece(path, place, 100);
    EXPECT_LE(piece.lines.size(), 100U);
    EXPECT_GT(piece.next.offset, place.offset);
    read += piece.lines;
    place = piece.next;
  }
  EXPECT_TRUE(read.starts_with(wanted));
  EXPECT_TRUE(read.ends_with("{\"step\":200}\n"));
  EXPECT_LT(read.size(), wanted.size() + 120);
}

TEST(MetricsPiece, PlacesThatNoReplyNamedBeginAnewAndLinksAreRefused) {
  const TempFolder here;
  const std::string path = here.write("metrics.jsonl", "{1}\n{2}\n");
  for (const MetricsPlace& place : {MetricsPlace{4, ""}, MetricsPlace{-1, ""}, MetricsPlace{4, "0"},
                                    MetricsPlace{INT64_MAX, "0"}, MetricsPlace{0, "0"}})
    EXPECT_EQ(read_metrics_piece(path, place).begin, 0) << place.offset;
  std::filesystem::create_symlink(path, here / "link");
  EXPECT_THROW(read_metrics_piece(here / "link", {}), Error);
  EXPECT_THROW(read_metrics_piece(here / "none", {}), Error);
}

}  // namespace
}  // namespace tessera::report
