#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tessera/data/readers/dataset_files.h"
#include "tessera/data/readers/parse_record.h"
#include "tessera/data/readers/record_reader.h"

#include "tests/data/expect_error.h"
#include "tests/testing/temp_folder.h"

namespace tessera::data {
namespace {

using testing::TempFolder;

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct ReadAll {
  std::vector<nlohmann::ordered_json> values;
  std::vector<RawRecord> records;
  ReadCounts counts;
};

ReadAll read_all(const std::string& path, FileFormat format) {
  ReadAll all;
  const auto reader = open_records(path, format);
  RawRecord record;
  while (reader->next(record)) {
    all.records.push_back(record);
    if (format != FileFormat::Text) all.values.push_back(parse_record(record, path));
  }
  all.counts = reader->counts();
  return all;
}

std::vector<int64_t> field_a(const ReadAll& all) {
  std::vector<int64_t> values;
  for (const auto& value : all.values) values.push_back(value.at("a").get<int64_t>());
  return values;
}

TEST(JsonLines, CountsBlankLinesAndKeepsLineNumbers) {
  const TempFolder folder;
  const std::string path =
      folder.write("a.jsonl", "\xEF\xBB\xBF{\"a\": 1}\r\n\n  \t\n{\"a\": 2}\r\n{\"a\": 3}");
  const ReadAll all = read_all(path, FileFormat::JsonLines);
  EXPECT_THAT(field_a(all), ElementsAre(1, 2, 3));
  EXPECT_EQ(all.records[1].line, 4);
  EXPECT_EQ(all.records[0].byte_offset, 3);
  EXPECT_EQ(all.counts.blank_lines, 2);
  EXPECT_EQ(all.counts.crlf_lines, 2);
  EXPECT_TRUE(all.counts.byte_order_mark);
  EXPECT_TRUE(all.counts.missing_final_newline);
}

TEST(JsonLines, EmptyFileHasNoRecords) {
  const TempFolder folder;
  EXPECT_TRUE(read_all(folder.write("a.jsonl", ""), FileFormat::JsonLines).records.empty());
  EXPECT_TRUE(read_all(folder.write("b.json", " \n"), FileFormat::Json).records.empty());
  EXPECT_TRUE(read_all(folder.write("c.json", "[]"), FileFormat::Json).records.empty());
  EXPECT_TRUE(read_all(folder.write("d.txt", ""), FileFormat::Text).records.empty());
}

TEST(JsonLines, BadLineNamesLineAndColumn) {
  const TempFolder folder;
  const std::string path = folder.write("a.jsonl", "{\"a\": 1}\n{\"a\": x}\n");
  const std::string text = error_text("E-DATA-JSON", [&] { read_all(path, FileFormat::JsonLines); });
  EXPECT_THAT(text, HasSubstr("a.jsonl:2:7: "));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("json.exception")));
}

TEST(JsonLines, TruncatedLastLineIsAnErrorAtItsLine) {
  const TempFolder folder;
  const std::string path = folder.write("a.jsonl", "{\"a\": 1}\n{\"a\": 2, \"b\": \"xy");
  EXPECT_THAT(error_text("E-DATA-JSON", [&] { read_all(path, FileFormat::JsonLines); }),
              HasSubstr("a.jsonl:2:"));
}

TEST(JsonLines, RefusesWhatIsNotAnObject) {
  const TempFolder folder;
  const std::string path = folder.write("a.jsonl", "{\"a\": 1}\n[1]\n");
  const std::string text = error_text("E-DATA-NOT-AN-OBJECT", [&] { read_all(path, FileFormat::JsonLines); });
  EXPECT_THAT(text, HasSubstr("a.jsonl:2:1: the record is not a JSON object; got array, need object"));
}

TEST(JsonLines, EncodingErrorsNameTheByte) {
  const TempFolder folder;
  const auto text_of = [&](const std::string& line) {
    const std::string path = folder.write("a.jsonl", "{\"a\": 1}\n" + line + "\n");
    return error_text("E-DATA-ENCODING", [&] { read_all(path, FileFormat::JsonLines); });
  };
  EXPECT_THAT(text_of("{\"a\": \"x\xFFy\"}"), HasSubstr("a.jsonl:2:9: invalid UTF-8 at byte offset 17"));
  EXPECT_THAT(text_of("{\"a\": \"\xED\xA0\x80\"}"),
              HasSubstr("a.jsonl:2:8: invalid UTF-8 at byte offset 16"));
  EXPECT_THAT(text_of(std::string("{\"a\": \"x\0y\"}", 12)),
              HasSubstr("a.jsonl:2:9: a NUL byte at byte offset 17"));
  EXPECT_THAT(text_of("{\"a\": \"\\u0000\"}"), HasSubstr("a NUL character \\u0000 at byte offset 16"));
  EXPECT_THAT(text_of("{\"a\": \"\\ud800\"}"),
              HasSubstr("a.jsonl:2:8: a lone surrogate \\ud800 at byte offset 16"));
  EXPECT_THAT(text_of("{\"a\": \"\\ud800\\u0041\"}"), HasSubstr("a lone surrogate \\ud800"));
  EXPECT_THAT(text_of("{\"a\": \"\\udc00\"}"), HasSubstr("a lone surrogate \\udc00"));
}

TEST(JsonLines, PairedSurrogatesAndEscapedBackslashesAreText) {
  const TempFolder folder;
  const std::string path = folder.write("a.jsonl", R"({"a": "\ud83d\ude00"})"
                                                   "\n"
                                                   R"({"a": "\\u0000 \\ud800"})"
                                                   "\n");
  const ReadAll all = read_all(path, FileFormat::JsonLines);
  EXPECT_EQ(all.values[0]["a"], "\xF0\x9F\x98\x80");
  EXPECT_EQ(all.values[1]["a"], "\\u0000 \\ud800");
}

TEST(JsonLines, DeepNestingIsRefused) {
  const TempFolder folder;
  const std::string path = folder.write("a.jsonl", "{\"a\": " + std::string(100'000, '[') + "}\n");
  EXPECT_THAT(error_text("E-DATA-JSON-DEPTH", [&] { read_all(path, FileFormat::JsonLines); }),
              HasSubstr("a.jsonl:1:70"));
}

TEST(JsonLines, NumbersOutOfRangeAreErrors) {
  const TempFolder folder;
  const std::string path = folder.write("a.jsonl", "{\"a\": 1e999}\n");
  EXPECT_THAT(error_text("E-DATA-JSON", [&] { read_all(path, FileFormat::JsonLines); }),
              HasSubstr("a.jsonl:1:"));
}

TEST(JsonLines, HugeLineIsRefusedWithoutHoldingItAndReadingGoesOn) {
  const TempFolder folder;
  std::string text = "{\"a\": 1}\n{\"a\": \"";
  text.append(static_cast<size_t>(kMaxRecordBytes) + 1000, 'x');
  text += "\"}\n{\"a\": 3}\n";
  const std::string path = folder.write("a.jsonl", text);
  const auto reader = open_json_lines(path);
  RawRecord record;
  ASSERT_TRUE(reader->next(record));
  EXPECT_THAT(error_text("E-DATA-LINE-TOO-LONG", [&] { reader->next(record); }), HasSubstr("a.jsonl:2: "));
  ASSERT_TRUE(reader->can_continue());
  ASSERT_TRUE(reader->next(record));
  EXPECT_EQ(record.line, 3);
  EXPECT_EQ(record.text, "{\"a\": 3}");
}

// A file of a terabyte that holds nothing: what is read of it is bounded.
std::string sparse_file(const TempFolder& folder, const std::string& name) {
  const std::string path = folder.write(name, "{\"a\": 1}\n");
  EXPECT_EQ(::truncate(path.c_str(), int64_t{1} << 40), 0);
  return path;
}

TEST(Readers, SparseFilesAreNotReadToTheirEnd) {
  const TempFolder folder;
  RawRecord record;
  const std::string lines = sparse_file(folder, "a.jsonl");
  const auto reader = open_json_lines(lines);
  ASSERT_TRUE(reader->next(record));
  EXPECT_THAT(
      error_text("E-DATA-LINE-TOO-LONG", [&] { reader->next(record); }),
      ::testing::AllOf(HasSubstr("a.jsonl:2: "), HasSubstr("more than 1.0 GiB"), HasSubstr("64.0 MiB")));
  EXPECT_FALSE(reader->can_continue());
  EXPECT_THAT(
      error_text("E-DATA-ENCODING", [&] { read_all(sparse_file(folder, "a.json"), FileFormat::Json); }),
      HasSubstr("a.json:2:1: a NUL byte"));
  EXPECT_THAT(
      error_text("E-DATA-ENCODING", [&] { read_all(sparse_file(folder, "a.txt"), FileFormat::Text); }),
      HasSubstr("a.txt:2:1"));
}

TEST(Readers, WhatIsNoFileIsRefusedAtOnce) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe.jsonl").c_str(), 0600), 0);
  for (const FileFormat format : {FileFormat::JsonLines, FileFormat::Json, FileFormat::Text}) {
    EXPECT_THAT(error_text("E-STORAGE-NOT-A-FILE", [&] { open_records(folder / "pipe.jsonl", format); }),
                ::testing::AllOf(HasSubstr("pipe.jsonl"), HasSubstr("got a pipe")));
    EXPECT_THAT(error_text("E-STORAGE-NOT-A-FILE", [&] { open_records("/dev/zero", format); }),
                HasSubstr("got a device"));
    EXPECT_THAT(error_text("E-STORAGE-IS-A-DIRECTORY", [&] { open_records(folder.path(), format); }),
                HasSubstr(folder.path()));
    EXPECT_THAT(error_text("E-CONFIG-NO-FILE", [&] { open_records(folder / "none", format); }),
                HasSubstr("none"));
  }
}

TEST(Json, ArrayElementsWithPlaces) {
  const TempFolder folder;
  const std::string path =
      folder.write("a.json", "[\n  {\"a\": 1, \"s\": \"]},{\\\"\"},\n  {\n    \"a\": 2\n  }\n]\n");
  const ReadAll all = read_all(path, FileFormat::Json);
  EXPECT_THAT(field_a(all), ElementsAre(1, 2));
  EXPECT_EQ(all.values[0]["s"], "]},{\"");
  EXPECT_EQ(all.records[1].line, 3);
  EXPECT_EQ(all.records[1].column, 3);
  EXPECT_EQ(all.records[1].element, 1);
}

TEST(Json, SequenceOfObjects) {
  const TempFolder folder;
  const ReadAll all =
      read_all(folder.write("a.json", "{\"a\": 1}\n{\n\"a\": 2}{\"a\": 3}\n"), FileFormat::Json);
  EXPECT_THAT(field_a(all), ElementsAre(1, 2, 3));
}

TEST(Json, ErrorsNameElementLineAndColumn) {
  const TempFolder folder;
  const auto text_of = [&](const std::string& code, const std::string& text) {
    const std::string path = folder.write("a.json", text);
    return error_text(code, [&] { read_all(path, FileFormat::Json); });
  };
  EXPECT_THAT(text_of("E-DATA-JSON", "[\n{\"a\": 1},\n{\n\"a\": y}]"), HasSubstr("a.json:4:6: "));
  EXPECT_THAT(text_of("E-DATA-JSON", "[\n{\"a\": 1},\n{\n\"a\": y}]"), HasSubstr("(element 1)"));
  EXPECT_THAT(text_of("E-DATA-JSON", "[{\"a\": 1} {\"a\": 2}]"),
              HasSubstr("a.json:1:11: no comma between elements (element 0)"));
  EXPECT_THAT(text_of("E-DATA-JSON", "[{\"a\": 1},]"), HasSubstr("a comma before the end of the array"));
  EXPECT_THAT(text_of("E-DATA-JSON", "[{\"a\": \"x\n\"}]"), HasSubstr("a string is not closed"));
  EXPECT_THAT(text_of("E-DATA-JSON", "[{\"a\": 1}] x"), HasSubstr("text after the end of the array"));
  EXPECT_THAT(text_of("E-DATA-TRUNCATED", "[{\"a\": 1},\n{\"a\": "),
              HasSubstr("a.json:2:7: the file ends inside the element that begins at line 2"));
  EXPECT_THAT(text_of("E-DATA-TRUNCATED", "[{\"a\": 1}"), HasSubstr("the file ends inside the array"));
  EXPECT_THAT(text_of("E-DATA-NOT-AN-OBJECT", "[{\"a\": 1}, 7]"), HasSubstr("a.json:1:12: "));
}

TEST(Json, EveryTruncationOfAFileIsAnErrorOrShorter) {
  const TempFolder folder;
  const std::string whole = "[{\"a\": 1, \"b\": [\"x\\n\", {}]}, {\"a\": 2}]";
  for (size_t size = 1; size < whole.size(); ++size) {
    const std::string path = folder.write("a.json", whole.substr(0, size));
    EXPECT_THROW(read_all(path, FileFormat::Json), Error) << size;
  }
}

// Whatever one byte is changed to, a file is read or refused by an error of its own.
TEST(Json, EveryChangedByteIsReadOrRefused) {
  const TempFolder folder;
  const std::string element = R"({"a": 1, "b": ["x\n", {}, null], "c": "\ud83d\ude00 é"})";
  int64_t read = 0, refused = 0;
  for (const FileFormat format : {FileFormat::Json, FileFormat::JsonLines, FileFormat::Text}) {
    const std::string whole =
        format == FileFormat::Json ? "[" + element + ",\n" + element + "]" : element + "\n" + element + "\n";
    for (size_t at = 0; at < whole.size(); ++at) {
      for (const char byte : {'\0', '\xFF', '"', '{', '}', ']', '\\', '\n', 'u', '7'}) {
        std::string changed = whole;
        changed[at] = byte;
        const std::string path = folder.write("a.json", changed);
        try {
          read_all(path, format);
          ++read;
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::Data) << error.what();
          ++refused;
        }
      }
    }
  }
  EXPECT_GT(read, 0);
  EXPECT_GT(refused, 0);
}

TEST(Text, OneDocumentInPieces) {
  const TempFolder folder;
  std::string text;
  for (int line = 0; text.size() < (size_t{9} << 20); ++line)
    text += "line " + std::to_string(line) + " \xC3\xA9\n";
  const ReadAll all = read_all(folder.write("a.txt", text), FileFormat::Text);
  ASSERT_EQ(all.records.size(), 2U);
  EXPECT_EQ(all.records[0].text + all.records[1].text, text);
  EXPECT_EQ(all.records[0].text.back(), '\n');
  EXPECT_TRUE(all.records[0].begins_document);
  EXPECT_FALSE(all.records[0].ends_document);
  EXPECT_FALSE(all.records[1].begins_document);
  EXPECT_TRUE(all.records[1].ends_document);
}

TEST(Text, OneLongLineIsCutBetweenCharacters) {
  const TempFolder folder;
  std::string text = "x";
  while (text.size() < (size_t{17} << 20)) text += "\xE2\x82\xAC";
  const ReadAll all = read_all(folder.write("a.txt", text), FileFormat::Text);
  std::string joined;
  for (const RawRecord& record : all.records) joined += record.text;
  EXPECT_EQ(all.records.size(), 3U);
  EXPECT_TRUE(joined == text);
}

TEST(Text, EncodingErrorsNameTheByte) {
  const TempFolder folder;
  const std::string path = folder.write("a.txt", "one\ntw\xFFo\n");
  EXPECT_THAT(error_text("E-DATA-ENCODING", [&] { read_all(path, FileFormat::Text); }),
              HasSubstr("a.txt:2:3: invalid UTF-8 at byte offset 6"));
  const std::string utf16 = folder.write("b.txt", std::string_view("\xFF\xFEx\0", 4));
  EXPECT_THAT(error_text("E-DATA-ENCODING", [&] { read_all(utf16, FileFormat::Text); }), HasSubstr("UTF-16"));
}

config::DatasetConfig entry(const std::string& path) {
  config::DatasetConfig dataset;
  dataset.path = path;
  dataset.source_file = "r.yaml";
  dataset.source_line = 5;
  return dataset;
}

TEST(DatasetFiles, FolderInOrderOfNames) {
  const TempFolder folder;
  folder.write("set/b.jsonl", "");
  folder.write("set/a.json", "");
  folder.write("set/deep/c.txt", "");
  folder.write("set/.hidden.json", "");
  folder.write("set/README.md", "");
  const auto files = find_dataset_files(entry("set"), folder.path());
  ASSERT_EQ(files.size(), 3U);
  EXPECT_THAT(files[0].path, ::testing::EndsWith("set/a.json"));
  EXPECT_EQ(files[0].format, FileFormat::Json);
  EXPECT_EQ(files[1].format, FileFormat::JsonLines);
  EXPECT_EQ(files[2].format, FileFormat::Text);

  config::DatasetConfig chosen = entry("set");
  chosen.data_files = {"b.jsonl", "a*"};
  const auto two = find_dataset_files(chosen, folder.path());
  ASSERT_EQ(two.size(), 2U);
  EXPECT_THAT(two[0].path, ::testing::EndsWith("b.jsonl"));
}

TEST(DatasetFiles, MissingPathsNameTheEntry) {
  const TempFolder folder;
  folder.write("set/x.parquet", "");
  const auto text_of = [&](const std::string& code, const config::DatasetConfig& dataset) {
    return error_text(code, [&] { find_dataset_files(dataset, folder.path()); });
  };
  EXPECT_THAT(text_of("E-CONFIG-NO-FILE", entry("nowhere.json")), HasSubstr("r.yaml:5: "));
  EXPECT_THAT(text_of("E-CONFIG-UNSUPPORTED", entry("set")), HasSubstr("pandas.read_parquet("));
  folder.write("empty/x.bin", "");
  EXPECT_THAT(text_of("E-CONFIG-NO-FILE", entry("empty")), HasSubstr("holds no dataset file"));
  EXPECT_THAT(text_of("E-CONFIG-FILE-FORMAT", entry("set/x.parquet")), HasSubstr("unknown format"));
  config::DatasetConfig dataset = entry("set");
  dataset.data_files = {"y.json"};
  EXPECT_THAT(text_of("E-CONFIG-NO-FILE", dataset), HasSubstr("'y.json' matches no file"));
}

RecordRange range_of(const std::string& split, int64_t num_records, int64_t shards = 1,
                     int64_t shards_idx = 0) {
  config::DatasetConfig dataset = entry("x");
  dataset.split = split;
  return resolve_range(parse_split(dataset), shards, shards_idx, num_records);
}

void expect_range(const RecordRange& range, int64_t begin, int64_t end) {
  EXPECT_EQ(range.begin, begin);
  EXPECT_EQ(range.end, end);
}

TEST(Split, Slices) {
  expect_range(range_of("", 10), 0, 10);
  expect_range(range_of("train", 10), 0, 10);
  expect_range(range_of("train[:10%]", 25), 0, 2);   // 2.5 rounds to the even 2
  expect_range(range_of("train[10%:]", 35), 4, 35);  // 3.5 rounds to the even 4
  expect_range(range_of("train[100:200]", 150), 100, 150);
  expect_range(range_of("train[-5:]", 20), 15, 20);
  expect_range(range_of("train[50%:20%]", 20), 10, 10);
}

TEST(Split, ShardsTileTheRange) {
  int64_t next = 3;
  for (int64_t shard = 0; shard < 4; ++shard) {
    const RecordRange range = range_of("train[3:]", 17, 4, shard);
    EXPECT_EQ(range.begin, next);
    next = range.end;
  }
  EXPECT_EQ(next, 17);
}

TEST(Split, RefusesOthers) {
  for (const char* split :
       {"test", "train[", "train[1]", "train[a:]", "train[:150%]", "[1:2]", "train[1:2]x"}) {
    EXPECT_THAT(error_text("E-CONFIG-SPLIT", [&] { range_of(split, 10); }), HasSubstr("r.yaml:5: ")) << split;
  }
}

}  // namespace
}  // namespace tessera::data
