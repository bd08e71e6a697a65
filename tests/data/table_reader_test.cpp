// Compares parquet and arrow files with the rows that they were made of.
#include <filesystem>
#include <fstream>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/data/readers/dataset_files.h"
#include "tessera/data/readers/parse_record.h"
#include "tessera/data/readers/record_reader.h"

#include "tests/data/expect_error.h"
#include "tests/testing/paths.h"
#include "tests/testing/random.h"
#include "tests/testing/skip.h"
#include "tests/testing/temp_folder.h"

namespace tessera::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<nlohmann::ordered_json> read_all(const std::string& path, FileFormat format = FileFormat::Table) {
  std::vector<nlohmann::ordered_json> rows;
  const auto reader = open_records(path, format);
  RawRecord record;
  while (reader->next(record)) rows.push_back(parse_record(record, path));
  return rows;
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class TableReaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      require_table_library("x.parquet");
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("E-CONFIG-UNSUPPORTED"), HasSubstr("libarrow"),
                                      HasSubstr("pandas.read_parquet(")));
      GTEST_SKIP() << testing::skip::kLibArrow;
    }
  }

  const std::string data_ = testing::source_folder() + "/tests/reference/data/tables";
  testing::TempFolder folder_;
};

TEST_F(TableReaderTest, RowsAreThoseOfTheJsonLines) {
  const auto expected = read_all(data_ + "/rows.jsonl", FileFormat::JsonLines);
  ASSERT_EQ(expected.size(), 50U);
  for (const char* name : {"rows.parquet", "snappy.parquet", "rows.arrow", "stream.arrow"})
    EXPECT_EQ(read_all(data_ + "/" + name), expected) << name;
}

// A struct column has the keys of all rows' objects in each row; those that a row does not have are null.
TEST_F(TableReaderTest, AStructHasTheKeysOfItsRowAlone) {
  const auto expected = read_all(data_ + "/structs.jsonl", FileFormat::JsonLines);
  ASSERT_EQ(expected.size(), 2U);
  for (const char* name : {"structs.parquet", "structs.arrow"}) {
    const auto rows = read_all(data_ + "/" + name);
    EXPECT_EQ(rows, expected) << name;
  }
  EXPECT_EQ(expected[1]["messages"][1]["tool_calls"][1]["function"]["arguments"].dump(), "{}");
  EXPECT_TRUE(expected[0]["note"].is_null()) << "a column that is null stays one";
}

TEST_F(TableReaderTest, RowsThatUnpackToTooMuchAreRefusedBeforeTheyAreUnpacked) {
  EXPECT_THAT(error_text("E-DATA-TABLE", [&] { read_all(data_ + "/unpacks.parquet"); }),
              AllOf(HasSubstr("more memory than is allowed for a file of this size"),
                    HasSubstr("smaller row groups")));
  const auto reader = open_records(data_ + "/long_row.parquet", FileFormat::Table);
  RawRecord record;
  ASSERT_TRUE(reader->next(record));
  EXPECT_EQ(record.value->dump(), R"({"text":"first"})");
  EXPECT_THAT(error_text("E-DATA-ELEMENT-TOO-LONG", [&] { reader->next(record); }), HasSubstr("row 1"));
  ASSERT_TRUE(reader->can_continue());
  ASSERT_TRUE(reader->next(record));
  EXPECT_EQ(record.value->dump(), R"({"text":"last"})");
}

TEST_F(TableReaderTest, OtherColumns) {
  ::testing::internal::CaptureStderr();
  const auto rows = read_all(data_ + "/others.parquet");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("columns of bytes are left out: image"));
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].dump(), R"({"day":"2024-10-04","word":"a","half":1.5,"pairs":{"k":1},"large":["x"]})");
  EXPECT_EQ(rows[1].dump(), R"({"day":null,"word":"b","half":null,"pairs":{},"large":null})");
}

TEST_F(TableReaderTest, ValuesOfEveryType) {
  const auto rows = read_all(data_ + "/values.arrow");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].dump(),
            R"({"i8":-128,"i64":-9223372036854775808,"u64":18446744073709551615,"f32":0.10000000149011612,)"
            R"("f64":3.0,"ok":true,"view":"é","fixed":[1,null],"ids":[[1,"a"],[2,null]],"nothing":null,)"
            R"("time":"2024-10-04 00:00:01","money":"1.50","parts":[{"a":1},{"b":[]}]})");
  EXPECT_EQ(rows[1].dump(),
            R"({"i8":127,"i64":5,"u64":0,"f32":null,"f64":null,"ok":false,"view":"","fixed":null,"ids":[],)"
            R"("nothing":null,"time":null,"money":null,"parts":[]})");
  EXPECT_TRUE(rows[0]["i8"].is_number_integer() && !rows[0]["i8"].is_number_unsigned());
  EXPECT_TRUE(rows[1]["i64"].is_number_unsigned()) << "as the parser of JSON has it";
  EXPECT_TRUE(rows[0]["f64"].is_number_float());
}

TEST_F(TableReaderTest, ReadingGoesOnBehindRowsThatAreRefused) {
  struct Case {
    const char *file, *code, *what;
    bool has_next;
  };
  for (const Case& one :
       {Case{"nul.arrow", "E-DATA-ENCODING", "row 0: a NUL character", true},
        Case{"deep.parquet", "E-DATA-JSON-DEPTH", "row 0: nested deeper than 64 levels", true},
        Case{"twice.arrow", "E-DATA-DUPLICATE-KEY", "row 0: the key \"a\" stands twice", false}}) {
    const auto reader = open_records(data_ + "/" + one.file, FileFormat::Table);
    RawRecord record;
    EXPECT_THAT(error_text(one.code, [&] { reader->next(record); }), HasSubstr(one.what));
    EXPECT_TRUE(reader->can_continue());
    ASSERT_EQ(reader->next(record), one.has_next) << one.file;
    if (one.has_next) {
      EXPECT_EQ(record.element, 1);
      EXPECT_NE(record.value, nullptr);
    }
  }
}

TEST_F(TableReaderTest, ASavedDatasetIsReadBySplit) {
  config::DatasetConfig dataset;
  const auto count = [&](const std::string& path) {
    dataset.path = path;
    size_t rows = 0;
    for (const DatasetFile& file : find_dataset_files(dataset, ""))
      rows += read_all(file.path, file.format).size();
    return rows;
  };
  EXPECT_EQ(count(data_ + "/saved"), 40U);
  EXPECT_EQ(count(data_ + "/saved/test"), 10U) << "one split by itself is what its folder holds";
  dataset.split = "test";
  EXPECT_EQ(count(data_ + "/saved"), 10U);
  dataset.split = "validation";
  EXPECT_THAT(error_text("E-CONFIG-SPLIT", [&] { count(data_ + "/saved"); }), HasSubstr("need train, test"));

  // The list of files names one that is missing, or one outside the folder.
  folder_.write("set/dataset_info.json", "{}");
  dataset.split = "";
  for (const char* state :
       {R"({"_data_files": [{"filename": "x.arrow"}]})", R"({"_data_files": [{"filename": 5}]})",
        R"({"_data_files": [{"filename": "../a.arrow"}]})", R"({"_data_files": []})", "[]"}) {
    folder_.write("set/state.json", state);
    EXPECT_THAT(error_text("E-DATA-SAVED-DATASET", [&] { count(folder_ / "set"); }), HasSubstr("state.json"));
  }
}

// The cuts include those between two batches, which leave a valid but shorter stream.
TEST_F(TableReaderTest, AStreamThatIsCutIsNeverTakenForAShorterOne) {
  const std::string whole = bytes_of(data_ + "/stream.arrow");
  for (size_t size = 0; size < whole.size(); size += 8) {
    const std::string path = folder_.write("cut", whole.substr(0, size));
    EXPECT_THAT(error_text("E-DATA-TABLE", [&] { read_all(path); }), HasSubstr("/cut")) << size;
  }
}

// Wherever a file is cut, and whatever a byte is changed to, it is read, or refused with an error that names
// it.
TEST_F(TableReaderTest, DamageIsRefusedOrHarmless) {
  testing::Random numbers;
  std::mt19937_64& random = numbers.engine();
  for (const char* name : {"snappy.parquet", "rows.arrow", "stream.arrow", "others.parquet"}) {
    const std::string whole = bytes_of(data_ + "/" + name);
    int64_t refused = 0;
    const auto check = [&](const std::string& bytes) {
      const std::string path = folder_.write("damaged", bytes);
      try {
        read_all(path);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::Data) << error.what();
        EXPECT_THAT(error.what(), HasSubstr("damaged"));
        ++refused;
      }
    };
    for (size_t size = 0; size < whole.size(); size += 197) check(whole.substr(0, size));
    for (int i = 0; i < 200; ++i) {
      std::string changed = whole;
      for (uint64_t bits = 1 + random() % 3; bits > 0; --bits)
        changed[random() % whole.size()] ^= static_cast<char>(1 << (random() % 8));
      check(random() % 4 == 0 ? changed.substr(0, random() % whole.size()) : changed);
    }
    const int64_t cut = refused;
    EXPECT_GT(cut, 10) << name;
    for (size_t at = 0; at < whole.size(); at += 31) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ 0xFF);
      check(changed);
    }
    EXPECT_GT(refused, cut) << name;
  }
}

}  // namespace
}  // namespace tessera::data
