#include "tessera/config/hub_datasets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/config/load_recipe.h"
#include "tessera/core/error.h"
#include "tessera/hub/fetch.h"

#include "tests/hub/fake_hub.h"
#include "tests/testing/temp_folder.h"

namespace tessera::config {
namespace {

using tessera::testing::FakeHub;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kCard = R"(---
configs:
- config_name: main
  default: true
  data_files:
  - {split: train, path: main/train-*}
  - {split: test, path: main/test-*}
- config_name: socratic
  data_files: socratic/*.jsonl
---
)";

const hub::Names kNames = {
    ".gitattributes",       "README.md",  "extra.json", "main/test-0.parquet", "main/train-0.parquet",
    "socratic/train.jsonl", "picture.png"};

// Has the hub's cache stand in `home`, and nothing forbid to fetch.
void keep_cache_in(const tessera::testing::TempFolder& home) {
  for (const char* name : {"HF_HUB_OFFLINE", "HF_TOKEN", "HF_HUB_CACHE"}) ::unsetenv(name);
  ::setenv("HF_HOME", home.path().c_str(), 1);
  ::setenv("NO_PROXY", "127.0.0.1", 1);
}

// Returns what is chosen of these names, or the error.
std::vector<std::string> chosen(const DatasetConfig& dataset, const hub::Names& names,
                                const std::string& card = "") {
  try {
    return choose_dataset(dataset)(names, [&](const std::string&) { return card; }).files;
  } catch (const Error& error) {
    return {error.what()};
  }
}

TEST(HubDatasetsTest, TheFilesOfAConfigurationAreChosen) {
  DatasetConfig dataset;
  dataset.path = "org/name";
  EXPECT_THAT(chosen(dataset, kNames, kCard),
              ElementsAre("main/train-0.parquet", "main/test-0.parquet", "README.md"));
  dataset.name = "socratic";
  EXPECT_THAT(chosen(dataset, kNames, kCard), ElementsAre("socratic/train.jsonl", "README.md"));
  std::string card = kCard;
  for (size_t at = 0; (at = card.find('\n', at)) != std::string::npos; at += 2) card.insert(at, "\r");
  EXPECT_THAT(chosen(dataset, kNames, card), ElementsAre("socratic/train.jsonl", "README.md"));
  dataset.name.clear();
  EXPECT_THAT(chosen(dataset, kNames, card),
              ElementsAre("main/train-0.parquet", "main/test-0.parquet", "README.md"));
  dataset.name = "socratic";
  EXPECT_THAT(chosen(dataset, kNames), ElementsAre("socratic/train.jsonl", "README.md"))
      << "a folder of that name";
  dataset.name = "other";
  EXPECT_THAT(chosen(dataset, kNames, kCard), ElementsAre(HasSubstr("E-CONFIG-DATASET-NAME")));
  EXPECT_THAT(chosen(dataset, kNames), ElementsAre(HasSubstr("E-CONFIG-HUB-FILES")));
  dataset.name.clear();
  EXPECT_THAT(chosen(dataset, kNames),
              ElementsAre("extra.json", "main/test-0.parquet", "main/train-0.parquet", "socratic/train.jsonl",
                          "README.md"));
  dataset.data_files = {"main/t*"};
  EXPECT_THAT(chosen(dataset, kNames, kCard),
              ElementsAre("main/test-0.parquet", "main/train-0.parquet", "README.md"));
  dataset.data_files = {"main/t*", "main/train-*", "main/train-0.parquet"};
  EXPECT_THAT(chosen(dataset, kNames),
              ElementsAre("main/test-0.parquet", "main/train-0.parquet", "README.md"))
      << "patterns may overlap";
  dataset.data_files = {"main/train-*", "main/t*"};
  EXPECT_THAT(chosen(dataset, kNames),
              ElementsAre("main/train-0.parquet", "main/test-0.parquet", "README.md"))
      << "in the order of the patterns";
  dataset.data_files = {"none/*"};
  EXPECT_THAT(chosen(dataset, kNames, kCard), ElementsAre(HasSubstr("'none/*'")));
  dataset.data_files.clear();
  EXPECT_THAT(chosen(dataset, {"name.py", "README.md"}),
              ElementsAre(HasSubstr("revision: refs/convert/parquet")));
  EXPECT_TRUE(is_dataset_name("org/name"));
  for (const char* path : {"name", "data/train.jsonl", "data/a.json.zst", "/a/b"})
    EXPECT_FALSE(is_dataset_name(path)) << path;
}

TEST(HubDatasetsTest, NothingMoreIsFetchedForARecipeThatIsRefused) {
  const tessera::testing::TempFolder home;
  keep_cache_in(home);
  FakeHub hub({}, "models", "org/other");
  ::setenv("HF_ENDPOINT", hub.url().c_str(), 1);
  const std::string recipe = home.write(
      "r.yaml", "base_model: org/none\nlearning_rate: 1e-4\ndatasets: [{path: org/name, type: alpaca}]\n");
  try {
    load_recipe(recipe);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no model org/none"));
  }
  EXPECT_EQ(hub.num_requests(), 1u);
}

TEST(HubDatasetsTest, DatasetsAreFetchedAndPartsCounted) {
  const tessera::testing::TempFolder home;
  keep_cache_in(home);
  FakeHub hub({{"data/train-00000-of-00002.jsonl", {"{}\n", true}},
               {"data/train-00001-of-00002.jsonl", {"{}\n", true}},
               {"script.py", {"x"}}},
              "datasets");
  ::setenv("HF_ENDPOINT", hub.url().c_str(), 1);
  const std::string folder = home / "hub/datasets--org--name/";
  // The one part is from an earlier time.
  home.write("hub/datasets--org--name/refs/main", FakeHub::kCommit);
  const std::string snapshot = folder + "snapshots/" + FakeHub::kCommit;
  home.write("hub/datasets--org--name/snapshots/" + std::string(FakeHub::kCommit) +
                 "/data/train-00000-of-00002.jsonl",
             "{}\n");
  DatasetConfig dataset;
  dataset.path = "org/name";
  EXPECT_EQ(fetch_dataset(dataset), snapshot);
  EXPECT_TRUE(std::filesystem::exists(snapshot + "/data/train-00001-of-00002.jsonl"));
  EXPECT_FALSE(std::filesystem::exists(snapshot + "/script.py"));
  const size_t before = hub.num_requests();
  EXPECT_EQ(fetch_dataset(dataset), snapshot);
  EXPECT_EQ(hub.num_requests(), before);
}

// Another tool, or a recipe with `data_files`, has fetched one file of several.
TEST(HubDatasetsTest, APartOfADatasetIsNotTakenForAllOfIt) {
  const std::vector<std::string> wishes[] = {{}, {"*.jsonl"}, {"a.jsonl", "b.jsonl"}};
  for (const bool is_ours : {false, true}) {
    for (const auto& wanted : wishes) {
      SCOPED_TRACE(::testing::PrintToString(wanted) + (is_ours ? ", ours" : ""));
      const tessera::testing::TempFolder home;
      keep_cache_in(home);
      FakeHub hub({{"a.jsonl", {"{}\n"}}, {"b.jsonl", {"{ }\n"}}}, "datasets");
      ::setenv("HF_ENDPOINT", hub.url().c_str(), 1);
      const std::string snapshot = home / "hub/datasets--org--name/snapshots/" + FakeHub::kCommit;
      DatasetConfig dataset;
      dataset.path = "org/name";
      dataset.data_files = {"a.jsonl"};
      if (is_ours) {
        fetch_dataset(dataset);
      } else {
        home.write("hub/datasets--org--name/refs/main", FakeHub::kCommit);
        home.write("hub/datasets--org--name/snapshots/" + std::string(FakeHub::kCommit) + "/a.jsonl", "{}\n");
      }
      const size_t before = hub.num_requests();
      EXPECT_EQ(fetch_dataset(dataset), snapshot);
      EXPECT_EQ(hub.num_requests(), before) << "this file alone is wanted";
      // Meanwhile the branch has gone on.
      if (wanted.size() < 2 || is_ours) hub.set_revision("moved");
      dataset.data_files = wanted;
      EXPECT_EQ(fetch_dataset(dataset), snapshot);
      EXPECT_TRUE(std::filesystem::exists(snapshot + "/b.jsonl"));
      const size_t after = hub.num_requests();
      EXPECT_EQ(fetch_dataset(dataset), snapshot);
      EXPECT_EQ(hub.num_requests(), after);
    }
  }
}

}  // namespace
}  // namespace tessera::config
