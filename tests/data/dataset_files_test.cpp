#include "tessera/data/readers/dataset_files.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/expect_error.h"
#include "tests/testing/temp_folder.h"

namespace tessera::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DatasetFilesTest : public ::testing::Test {
 protected:
  DatasetFilesTest() {
    dataset_.source_file = "r.yaml";
    dataset_.source_line = 5;
  }

  // Returns the dataset's files, relative to the test's folder.
  std::vector<std::string> files(const std::string& path) {
    dataset_.path = path;
    std::vector<std::string> names;
    for (const DatasetFile& file : find_dataset_files(dataset_, folder_.path()))
      names.push_back(std::filesystem::path(file.path).lexically_relative(folder_.path()));
    return names;
  }

  std::string message(const std::string& code, const std::string& path) {
    return error_text("E-CONFIG-" + code, [&] { files(path); });
  }

  void write(std::initializer_list<const char*> names) const {
    for (const char* name : names) folder_.write(name, "");
  }

  testing::TempFolder folder_;
  config::DatasetConfig dataset_;
};

TEST_F(DatasetFilesTest, FolderInOrderOfNames) {
  write({"set/b.jsonl", "set/a.json", "set/deep/c.txt", "set/.hidden.json", "set/README.md"});
  EXPECT_THAT(files("set"), ElementsAre("set/a.json", "set/b.jsonl", "set/deep/c.txt"));
  const auto found = find_dataset_files(dataset_, folder_.path());
  EXPECT_EQ(found[0].format, FileFormat::Json);
  EXPECT_EQ(found[1].format, FileFormat::JsonLines);
  EXPECT_EQ(found[2].format, FileFormat::Text);
  dataset_.data_files = {"b.jsonl", "a*", "**/*.txt"};
  EXPECT_THAT(files("set"), ElementsAre("set/b.jsonl", "set/a.json", "set/deep/c.txt"));
  dataset_.data_files = {"b.jsonl", "*", "**/*.txt"};
  EXPECT_THAT(files("set"), ElementsAre("set/b.jsonl", "set/a.json", "set/deep/c.txt"))
      << "patterns may overlap, and README.md is no data";
  dataset_.data_files = {".*"};
  EXPECT_THAT(files("set"), ElementsAre("set/.hidden.json"));
  dataset_.data_files = {"**"};
  write({"set/a/x.json", "set/__MACOSX/a.json"});
  EXPECT_THAT(files("set"), ElementsAre("set/a.json", "set/a/x.json", "set/b.jsonl", "set/deep/c.txt"));
}

TEST_F(DatasetFilesTest, FormatsByNameOrDsType) {
  for (const auto& [name, format] :
       std::initializer_list<std::pair<const char*, FileFormat>>{{"a.jsonl.gz", FileFormat::JsonLines},
                                                                 {"a.ndjson.zst", FileFormat::JsonLines},
                                                                 {"a.json.zstd", FileFormat::Json},
                                                                 {"a.csv", FileFormat::Csv},
                                                                 {"a.tsv.gz", FileFormat::Tsv},
                                                                 {"a.txt.zst", FileFormat::Text}}) {
    folder_.write(name, "");
    files(name);
    EXPECT_EQ(find_dataset_files(dataset_, folder_.path()).at(0).format, format) << name;
  }
  write({"a.log", "a.log.gz"});
  EXPECT_THAT(message("FILE-FORMAT", "a.log"), AllOf(HasSubstr("r.yaml:5: "), HasSubstr("ds_type")));
  for (const auto& [type, format] : std::initializer_list<std::pair<const char*, FileFormat>>{
           {"json", FileFormat::Json}, {"csv", FileFormat::Csv}, {"text", FileFormat::Text}}) {
    dataset_.ds_type = type;
    files("a.log.gz");
    EXPECT_EQ(find_dataset_files(dataset_, folder_.path()).at(0).format, format) << type;
  }
}

TEST_F(DatasetFilesTest, Patterns) {
  write({"set/b1.jsonl", "set/b2.jsonl", "set/c.jsonl", "parts/x/1.jsonl", "parts/y/2.jsonl"});
  EXPECT_THAT(files("set/b*.jsonl"), ElementsAre("set/b1.jsonl", "set/b2.jsonl"));
  EXPECT_THAT(files("parts/*"), ElementsAre("parts/x/1.jsonl", "parts/y/2.jsonl"));
  EXPECT_THAT(files("set/[bc]?.jsonl"), ElementsAre("set/b1.jsonl", "set/b2.jsonl"));
  EXPECT_THAT(message("NO-FILE", "set/d*.jsonl"), HasSubstr("r.yaml:5: "));
}

TEST_F(DatasetFilesTest, SplitsByTheNamesOfFiles) {
  write({"set/train-00000-of-00002.jsonl", "set/train-00001-of-00002.jsonl", "set/test.jsonl",
         "set/dev.jsonl", "set/more.jsonl"});
  EXPECT_THAT(files("set"), ElementsAre("set/train-00000-of-00002.jsonl", "set/train-00001-of-00002.jsonl"));
  dataset_.split = "validation[:10%]";
  EXPECT_THAT(files("set"), ElementsAre("set/dev.jsonl"));
  dataset_.split = "eval";
  EXPECT_THAT(files("set"), ElementsAre("set/test.jsonl"));
  EXPECT_THAT(files("set/test.jsonl"), ElementsAre("set/test.jsonl"));
  EXPECT_THAT(message("SPLIT", "set/more.jsonl"), HasSubstr("got 'test'"));
  dataset_.split = "train_sft";
  EXPECT_THAT(message("SPLIT", "set"),
              AllOf(HasSubstr("r.yaml:5: "), HasSubstr("got 'train_sft', need test, train, validation")));
  write({"only/my_test.jsonl"});
  dataset_.split = "";
  EXPECT_THAT(message("SPLIT", "only"), HasSubstr("got 'train', the default, need test"));
}

TEST_F(DatasetFilesTest, TheSplitToEvaluateIsTestWhereThereIsOne) {
  write({"a/train.jsonl", "a/test.jsonl", "a/dev.jsonl", "b/train.jsonl", "b/dev.jsonl", "c/rows.jsonl",
         "one.jsonl"});
  const auto split = [&](const char* path) {
    dataset_.path = path;
    return split_to_evaluate(dataset_, folder_.path());
  };
  EXPECT_EQ(split("a"), "test");
  EXPECT_EQ(split("b"), "validation");
  EXPECT_EQ(split("c"), "");
  EXPECT_EQ(split("one.jsonl"), "");
  error_text("E-CONFIG-NO-FILE", [&] { split("none"); });
  dataset_.split = "train[:5%]";
  EXPECT_EQ(split("a"), "train[:5%]");
}

TEST_F(DatasetFilesTest, ConfigurationsOfACard) {
  write({"hub/main/a.jsonl", "hub/main/b.jsonl", "hub/other/c.jsonl", "hub/other/d.jsonl"});
  folder_.write("hub/README.md",
                "---\nlicense: mit\nconfigs:\n- config_name: main\n  default: true\n  data_files:\n"
                "  - split: train\n    path: main/a*\n  - split: test\n    path: [main/b.jsonl]\n"
                "- config_name: other\n  data_files: other/*\n---\n# Text\n");
  EXPECT_THAT(files("hub"), ElementsAre("hub/main/a.jsonl"));
  dataset_.split = "test";
  EXPECT_THAT(files("hub"), ElementsAre("hub/main/b.jsonl"));
  dataset_.name = "other";
  EXPECT_THAT(message("SPLIT", "hub"), HasSubstr("got 'test', need train"));
  dataset_.split = "";
  EXPECT_THAT(files("hub"), ElementsAre("hub/other/c.jsonl", "hub/other/d.jsonl"));
  dataset_.name = "third";
  EXPECT_THAT(message("DATASET-NAME", "hub"), HasSubstr("got name: third, need one of main, other"));
  // If the card has no configurations, the name is that of a folder.
  folder_.write("hub/README.md", "---\nlicense: [\n---\n");
  dataset_.name = "other";
  EXPECT_THAT(files("hub"), ElementsAre("hub/other/c.jsonl", "hub/other/d.jsonl"));
  dataset_.name = "third";
  EXPECT_THAT(message("DATASET-NAME", "hub"), HasSubstr("hub/third"));
}

TEST_F(DatasetFilesTest, MissingPathsNameTheEntry) {
  EXPECT_THAT(message("NO-FILE", "nowhere.json"), HasSubstr("r.yaml:5: "));
  write({"empty/x.bin", "set/a.json"});
  EXPECT_THAT(message("NO-FILE", "empty"), HasSubstr("holds no dataset file"));
  dataset_.data_files = {"y.json"};
  EXPECT_THAT(message("NO-FILE", "set"), HasSubstr("'y.json' matches no file"));
}

}  // namespace
}  // namespace tessera::data
