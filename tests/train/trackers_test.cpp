#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/train/reporters/prometheus.h"
#include "tessera/train/reporters/wandb.h"

#include "tests/testing/temp_folder.h"
#include "tests/train/wire_reader.h"

namespace tessera::train {
namespace {

using tessera::testing::TempFolder;
namespace fs = std::filesystem;

std::string read_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// CRC-32 (IEEE 802.3), bit by bit.
uint32_t crc_of(const std::string& bytes) {
  uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

// The records of a file in LevelDB's log format, which begins with seven bytes of another kind.
std::vector<std::string> records_of(std::string file) {
  const size_t whole = file.size();
  EXPECT_EQ(take_bytes(file, 7), std::string(":W&B\xE1\xBE\0", 7));
  std::vector<std::string> records;
  std::string record;
  while (!file.empty()) {
    const size_t room = 32768 - (whole - file.size()) % 32768;
    if (room < 7) {
      EXPECT_EQ(take_bytes(file, room), std::string(room, '\0'));
      continue;
    }
    const auto crc = take<uint32_t>(file);
    const auto size = take<uint16_t>(file);
    const auto type = take<char>(file);
    EXPECT_LE(size + 7U, room);
    const std::string part = take_bytes(file, size);
    EXPECT_EQ(crc, crc_of(type + part));
    EXPECT_EQ(record.empty(), type == 1 || type == 2);
    record += part;
    if (type == 2 || type == 3) continue;
    records.push_back(std::move(record));
    record.clear();
  }
  EXPECT_TRUE(record.empty());
  return records;
}

// The items of a history or a config, by key.
std::map<std::string, nlohmann::json> items_of(const std::string& message) {
  std::map<std::string, nlohmann::json> items;
  const auto fields = fields_of(message);
  for (auto [at, end] = fields.equal_range(1); at != end; ++at) {
    const auto item = fields_of(at->second);
    items[item.find(1)->second] = nlohmann::json::parse(item.find(16)->second);
  }
  return items;
}

StepMetrics line_of(int64_t step) {
  StepMetrics line;
  line.step = step;
  line.loss = 1.5;
  line.lr = 1e-5;
  line.datasets = {{"chats", 1.25, 10}};
  return line;
}

config::Recipe recipe() {
  config::Recipe recipe;
  recipe.base_model = "model";
  recipe.learning_rate = 2e-5;
  recipe.wandb_project = "finetunes";
  recipe.wandb_name = "first";
  return recipe;
}

std::string only_file(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  EXPECT_EQ(files.size(), 1U);
  return files.at(0);
}

TEST(Wandb, ARecipeThatNamesAProjectWantsIt) {
  config::Recipe none;
  EXPECT_FALSE(wants_wandb(none));
  EXPECT_TRUE(wants_wandb(recipe()));
  config::Recipe off = recipe();
  off.use_wandb = false;
  EXPECT_FALSE(wants_wandb(off));
  off = recipe();
  off.wandb_mode = "disabled";
  EXPECT_FALSE(wants_wandb(off));
  none.use_wandb = true;
  EXPECT_TRUE(wants_wandb(none));
}

TEST(Wandb, TheFileHoldsTheRunAndItsHistory) {
  const TempFolder here;
  RunLogs logs(here.path());
  WandbFile wandb(logs, recipe());
  wandb.on_line(line_of(1));
  wandb.on_evaluation(1, 2.5, {{"chats", 2.25, 4}});
  const std::string file = only_file(here.path());
  EXPECT_NE(file.find("/wandb/offline-run-"), std::string::npos) << file;
  EXPECT_TRUE(file.ends_with(".wandb"));
  const auto records = records_of(read_text(file));
  ASSERT_EQ(records.size(), 4U);
  const auto run_record = fields_of(records[1]);
  const auto run = fields_of(run_record.find(17)->second);
  EXPECT_EQ(run.find(3)->second, "finetunes");
  EXPECT_EQ(run.find(8)->second, "first");
  EXPECT_EQ(file.substr(file.rfind("/run-") + 5), run.find(1)->second + ".wandb");
  const auto config = items_of(run.find(4)->second);
  EXPECT_EQ(config.at("base_model"), "model");
  EXPECT_EQ(config.at("learning_rate"), 2e-5);
  const auto line = items_of(fields_of(records[2]).find(2)->second);
  EXPECT_EQ(line.at("train/loss"), 1.5);
  EXPECT_EQ(line.at("train/loss/chats"), 1.25);
  EXPECT_EQ(line.at("train/global_step"), 1);
  const auto evaluation = items_of(fields_of(records[3]).find(2)->second);
  EXPECT_EQ(evaluation.at("eval/loss"), 2.5);
  EXPECT_EQ(evaluation.at("eval/loss/chats"), 2.25);
  EXPECT_GT(evaluation.at("_step"), line.at("_step"));
}

TEST(Wandb, ARunThatGoesOnKeepsItsFile) {
  const TempFolder first, second;
  RunLogs logs(first.path());
  WandbFile wandb(logs, recipe());
  for (int64_t step = 1; step <= 300; ++step) wandb.on_line(line_of(step));  // more than a block
  const auto kept = logs.contents();
  ASSERT_EQ(kept.size(), 1U);
  wandb.on_line(line_of(301));  // after the checkpoint
  RunLogs again(second.path(), {kept.begin(), kept.end()});
  WandbFile resumed(again, recipe());
  resumed.on_line(line_of(301));
  const std::string file = only_file(second.path());
  EXPECT_EQ(fs::path(file).filename(), fs::path(only_file(first.path())).filename());
  const auto records = records_of(read_text(file));
  ASSERT_EQ(records.size(), 303U);
  EXPECT_GT(fs::file_size(file), 2 * 32768U);
  EXPECT_EQ(items_of(fields_of(records[302]).find(2)->second).at("train/global_step"), 301);
}

// Records that end near, at and behind the end of a block, and that span several.
TEST(Wandb, FramesOfAnySize) {
  std::vector<std::string> written;
  std::string file = wandb_file_header();
  for (const size_t size : {0, 1, 32740, 5, 32761, 32760, 32754, 32747, 100000, 3}) {
    written.emplace_back(size, static_cast<char>('a' + written.size()));
    file += wandb_framed(written.back(), static_cast<int64_t>(file.size()));
  }
  EXPECT_EQ(records_of(file), written);
}

TEST(Prometheus, TextFormat) {
  const Scalars scalars = {{"train/loss", 1.5}, {"train/loss/a \"b\"\\c", 0.25}, {"eval/loss", 3}};
  EXPECT_EQ(prometheus_text(scalars, "out"),
            "# TYPE tessera_eval_loss gauge\n"
            "tessera_eval_loss{run=\"out\"} 3\n"
            "# TYPE tessera_train_loss gauge\n"
            "tessera_train_loss{run=\"out\"} 1.5\n"
            "tessera_train_loss{run=\"out\",dataset=\"a \\\"b\\\"\\\\c\"} 0.25\n");
}

TEST(Prometheus, TheFileHoldsTheNewestNumbers) {
  const TempFolder here;
  PrometheusFile file(here / "run.prom", "out");
  file.on_line(line_of(3));
  file.on_evaluation(3, 2.5, {});
  file.on_line(line_of(4));
  const std::string text = read_text(here / "run.prom");
  EXPECT_NE(text.find("tessera_train_step{run=\"out\"} 4\n"), std::string::npos) << text;
  EXPECT_NE(text.find("tessera_eval_loss{run=\"out\"} 2.5\n"), std::string::npos) << text;
  EXPECT_EQ(here.entries(), std::vector<std::string>{"run.prom"});
}

TEST(Prometheus, APlaceThatCannotBeWrittenStopsNothing) {
  const TempFolder here;
  PrometheusFile file(here / "no/such/folder/run.prom", "out");
  EXPECT_NO_THROW(file.on_line(line_of(1)));
  EXPECT_NO_THROW(file.on_line(line_of(2)));
}

}  // namespace
}  // namespace tessera::train
