#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tessera/data/readers/parse_record.h"
#include "tessera/data/readers/record_batches.h"
#include "tessera/data/readers/record_reader.h"

#include "tests/data/expect_error.h"
#include "tests/testing/compressed.h"
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

// However small the batches are, also where only blank lines are left behind a full one.
TEST(RecordBatches, CountTheBlankLinesOfTheRange) {
  const TempFolder folder;
  const std::vector<DatasetFile> files = {
      {folder.write("a.jsonl", "\n{\"a\": 1}\n\n{\"a\": 2}\n\n\n"), FileFormat::JsonLines},
      {folder.write("b.jsonl", "{\"a\": 3}\n\n"), FileFormat::JsonLines},
      {folder.write("c.jsonl", "\n"), FileFormat::JsonLines}};
  struct Case {
    RecordRange range;
    std::vector<int64_t> lines;
    int64_t blank_lines;
  };
  for (const Case& each :
       std::initializer_list<Case>{{{0, 100}, {2, 4, 1}, 6}, {{1, 2}, {4}, 1}, {{2, 100}, {1}, 4}}) {
    for (const int64_t batch_bytes : {1, 1000}) {
      RecordBatches batches(files, each.range, false, batch_bytes);
      std::vector<int64_t> lines;
      int64_t blank_lines = 0;
      for (RecordBatch batch; batches.next(batch);) {
        blank_lines += batch.blank_lines;
        for (const RawRecord& record : batch.records) lines.push_back(record.line);
      }
      EXPECT_EQ(lines, each.lines) << batch_bytes;
      EXPECT_EQ(blank_lines, each.blank_lines) << batch_bytes;
    }
  }
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
  EXPECT_THAT(text, ::testing::Not(HasSubstr("hint")));
}

// Python writes some values that are not JSON.
TEST(JsonLines, ValuesOfPythonAreToldApart) {
  const TempFolder folder;
  const std::pair<const char*, const char*> lines[] = {{"{\"a\": NaN}", "JSON has no NaN"},
                                                       {"{\"a\": -Infinity}", "JSON has no NaN"},
                                                       {"{'a': 1}", "json.dumps()"},
                                                       {"{\"a\": None}", "json.dumps()"},
                                                       {"{\"a\": True}", "json.dumps()"}};
  for (const auto& [line, hint] : lines) {
    const std::string path = folder.write("a.jsonl", std::string(line) + "\n");
    EXPECT_THAT(error_text("E-DATA-JSON", [&] { read_all(path, FileFormat::JsonLines); }), HasSubstr(hint))
        << line;
  }
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

// This includes a key that is spelled with escapes, and one in an inner object.
TEST(JsonLines, AKeyThatStandsTwiceIsRefusedAtItsPlace) {
  const TempFolder folder;
  const auto text_of = [&](const std::string& line) {
    const std::string path = folder.write("a.jsonl", "{\"a\": 1}\n" + line + "\n");
    return error_text("E-DATA-DUPLICATE-KEY", [&] { read_all(path, FileFormat::JsonLines); });
  };
  EXPECT_THAT(text_of(R"({"a": 1, "b": "c:", "a": 2})"),
              HasSubstr("a.jsonl:2:21: the key \"a\" stands twice in one object at byte offset 29"));
  EXPECT_THAT(text_of(R"({"a": 1, "\u0061" : 2})"), HasSubstr("a.jsonl:2:10: the key \"\\u0061\""));
  EXPECT_THAT(text_of(R"({"m": [{"x": "\"x\":"}, {"y": {}, "y": []}]})"), HasSubstr("a.jsonl:2:35: "));
  const std::string path =
      folder.write("b.jsonl", R"({"a": 1, "m": [{"a": "a"}, {"a": ["a", ":"]}], "A": {"a": {"a": 2}}})");
  EXPECT_THAT(field_a(read_all(path, FileFormat::JsonLines)), ElementsAre(1));
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

// Makes a sparse file of a terabyte, of which a reader must read only a bounded part.
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

// Users save arrays in files that are named as JSON Lines.
TEST(JsonLines, OneArrayIsReadAsJson) {
  const TempFolder folder;
  const std::string array = "\xEF\xBB\xBF\n [\n {\"a\": 1},\n {\n\"a\": 2}]\n";
  const ReadAll all = read_all(folder.write("a.jsonl", array), FileFormat::JsonLines);
  EXPECT_THAT(field_a(all), ElementsAre(1, 2));
  EXPECT_EQ(all.records[1].line, 4);
  EXPECT_THAT(field_a(read_all(folder.write("a.jsonl.gz", testing::gzipped(array)), FileFormat::JsonLines)),
              ElementsAre(1, 2));
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

// Whatever one byte is changed to, a file is read, or refused with an Error.
TEST(Json, EveryChangedByteIsReadOrRefused) {
  const TempFolder folder;
  const std::string element = R"({"a": 1, "b": ["x\n", {}, null], "c": "\ud83d\ude00 é"})";
  int64_t read = 0, refused = 0;
  for (const FileFormat format :
       {FileFormat::Json, FileFormat::JsonLines, FileFormat::Text, FileFormat::Csv}) {
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

TEST(Json, TheListOfOneObject) {
  const TempFolder folder;
  const ReadAll all =
      read_all(folder.write("a.json",
                            "{\"version\": \"1, [\", \"n\": {\"data\": [1]},\n \"data\" : [\n{\"a\": 1},\n"
                            " {\"a\": 2, \"data\": [{}]}], \"rest\": [\"]}\\\"\", {\"x\": 1}]}\n"),
               FileFormat::Json);
  EXPECT_THAT(field_a(all), ElementsAre(1, 2));
  EXPECT_EQ(all.records[1].line, 4);
  EXPECT_EQ(all.records[1].element, 1);
  // An object is a record if its list under "data" holds texts, or if the list has another name.
  EXPECT_EQ(read_all(folder.write("b.json", R"({"data": ["x"]})"), FileFormat::Json).values.size(), 1U);
  EXPECT_TRUE(read_all(folder.write("c.json", R"({"messages": [{"a": 1}]})"), FileFormat::Json)
                  .values.at(0)
                  .contains("messages"));
  // Only the first object of a file can hold all records.
  EXPECT_EQ(
      read_all(folder.write("d.json", R"({"a": 1} {"data": [{"a": 2}]})"), FileFormat::Json).values.size(),
      2U);
  for (const char* text : {R"({"data": [{"a": 1}])", R"({"data": [{"a": 1}], "b)", R"({"data": [{"a": 1})"}) {
    EXPECT_THAT(
        error_text("E-DATA-TRUNCATED", [&] { read_all(folder.write("e.json", text), FileFormat::Json); }),
        HasSubstr("e.json:1:"));
  }
}

TEST(Compressed, EveryReaderTakesThem) {
  const TempFolder folder;
  const std::string lines = "{\"a\": 1}\n{\"a\": 2}\n";
  for (const std::string& bytes : {testing::gzipped(lines), testing::zstd_frame(lines)}) {
    const std::string path = folder.write("a", bytes);
    EXPECT_THAT(field_a(read_all(path, FileFormat::JsonLines)), ElementsAre(1, 2));
    EXPECT_THAT(field_a(read_all(path, FileFormat::Json)), ElementsAre(1, 2));
    EXPECT_EQ(read_all(path, FileFormat::Text).records.at(0).text, lines);
  }
  EXPECT_EQ(read_all(folder.write("b", testing::gzipped("x,y\n1,2\n")), FileFormat::Csv).values.at(0)["y"],
            "2");
  // The rows before the damage are read; then the error names the line.
  std::string long_lines;
  for (int i = 0; i < 100'000; ++i) long_lines += "{\"a\": " + std::to_string(i) + "}\n";
  const std::string whole = testing::gzipped(long_lines);
  const std::string path = folder.write("cut.jsonl.gz", whole.substr(0, whole.size() / 2));
  const auto reader = open_json_lines(path);
  RawRecord record;
  int64_t rows = 0;
  const std::string text = error_text("E-DATA-COMPRESSED", [&] {
    while (reader->next(record)) ++rows;
  });
  EXPECT_THAT(text, HasSubstr("cut.jsonl.gz:"));
  EXPECT_FALSE(reader->can_continue()) << "the same damage would be met again";
}

TEST(Csv, CellsBecomeFields) {
  const TempFolder folder;
  const ReadAll all = read_all(folder.write("a.csv",
                                            "\xEF\xBB\xBFname,text, n\r\n"
                                            "a,\"x, \"\"y\"\"\nz\",1\r\n\r\n"
                                            "b,,\"\"\nc,\t\\,0"),
                               FileFormat::Csv);
  ASSERT_EQ(all.values.size(), 3U);
  EXPECT_EQ(all.values[0].dump(), R"({"name":"a","text":"x, \"y\"\nz"," n":"1"})");
  EXPECT_EQ(all.values[1].dump(), R"({"name":"b","text":null," n":""})");
  EXPECT_EQ(all.values[2].dump(), R"({"name":"c","text":"\t\\"," n":"0"})");
  EXPECT_EQ(all.records[0].line, 2);
  EXPECT_EQ(all.records[1].line, 5);
  EXPECT_EQ(all.counts.blank_lines, 1);
  EXPECT_TRUE(all.counts.byte_order_mark);
  EXPECT_TRUE(all.counts.missing_final_newline);
  EXPECT_EQ(read_all(folder.write("a.tsv", "a\tb\n1,5\t2\n"), FileFormat::Tsv).values.at(0)["a"], "1,5");
  // The first column is the index that pandas writes, which has no name.
  EXPECT_EQ(read_all(folder.write("i.csv", ",a\n0,x\n"), FileFormat::Csv).values.at(0).dump(),
            R"({"Unnamed: 0":"0","a":"x"})");
  EXPECT_TRUE(read_all(folder.write("e.csv", ""), FileFormat::Csv).records.empty());
  EXPECT_TRUE(read_all(folder.write("h.csv", "a,b\n"), FileFormat::Csv).records.empty());
}

TEST(Csv, ErrorsNameTheLine) {
  const TempFolder folder;
  const auto text_of = [&](const std::string& code, std::string_view text) {
    const std::string path = folder.write("a.csv", text);
    return error_text(code, [&] { read_all(path, FileFormat::Csv); });
  };
  EXPECT_THAT(text_of("E-DATA-CSV", "a,b\n1,2\n3\n"), HasSubstr("a.csv:3: "));
  EXPECT_THAT(text_of("E-DATA-CSV", "a,b\n1,2,3\n"), HasSubstr("got 3, need 2"));
  EXPECT_THAT(text_of("E-DATA-CSV", "a,a\n"), HasSubstr("a.csv:1: the header names column 'a' twice"));
  EXPECT_THAT(text_of("E-DATA-CSV", "a;b\n1;2\n"),
              HasSubstr("a.csv:1: the header is one cell, cut by ';'; got a;b, need cells with commas"));
  EXPECT_THAT(text_of("E-DATA-CSV", "a\tb\n1\t2\n"), HasSubstr("cut by '\\t'"));
  EXPECT_THAT(text_of("E-DATA-CSV", "a\n\"x\"y\n"), HasSubstr("a.csv:2: text follows the closing quote"));
  EXPECT_THAT(text_of("E-DATA-TRUNCATED", "a\n1\n\"x\n\n"), HasSubstr("a.csv:3: the file ends inside"));
  EXPECT_THAT(text_of("E-DATA-ENCODING", "a,b\n1,x\xFF\n"),
              HasSubstr("a.csv:2: invalid UTF-8 in cell 2, which begins at byte offset 6"));
  EXPECT_THAT(text_of("E-DATA-ENCODING", std::string_view("a,b\n1,x\0\n", 9)), HasSubstr("a NUL byte"));
  // A row of another width is one bad row; the next ones can be read.
  const auto reader = open_csv(folder.write("b.csv", "a,b\n1\n3,4\n"), ',');
  RawRecord record;
  EXPECT_THROW(reader->next(record), Error);
  ASSERT_TRUE(reader->can_continue());
  ASSERT_TRUE(reader->next(record));
  EXPECT_EQ(record.line, 3);
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

}  // namespace
}  // namespace tessera::data
