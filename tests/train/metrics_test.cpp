#include "tessera/train/step/metrics.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/io/disk_calls.h"
#include "tessera/train/reporters/metrics_file.h"
#include "tessera/train/reporters/progress.h"
#include "tessera/train/reporters/tensorboard.h"

#include "tests/testing/temp_folder.h"
#include "tests/train/wire_reader.h"

namespace tessera::train {
namespace {

using ::testing::HasSubstr;

// The expected values are those of RFC 3720, B.4, and the usual check value.
TEST(Crc32c, KnownVectors) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43U);
  std::string rising;
  for (char c = 0; c < 32; ++c) rising += c;
  EXPECT_EQ(crc32c(rising), 0x46DD794EU);
}

TEST(MetricsWindowTest, StatesOnADriveAreMeansOfTheStepsAlsoAfterAStop) {
  const auto step = [](int64_t bytes, double wait_s) {
    StepMetrics metrics;
    metrics.step_s = 1.0;
    metrics.states = {bytes, 2 * bytes, wait_s};
    return metrics;
  };
  MetricsWindow window;
  window.add(step(1000, 0.5));
  window = MetricsWindow::from_json(window.to_json());
  window.add(step(3000, 0.25));
  const StepMetrics line = window.take();
  ASSERT_TRUE(line.states.has_value());
  EXPECT_EQ(to_json(*line.states),
            (nlohmann::json{{"bytes_read", 2000}, {"bytes_written", 4000}, {"wait_s", 0.375}}));
  window.add(StepMetrics{.step_s = 1.0});
  EXPECT_FALSE(window.take().states.has_value());
}

uint32_t masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; }

struct Event {
  double wall_time = 0.0;
  int64_t step = 0;
  std::string version;
  std::map<std::string, float> scalars;
};

std::pair<std::string, float> decode_value(std::string bytes) {
  std::pair<std::string, float> value;
  while (!bytes.empty()) {
    const uint64_t key = take_varint(bytes);
    if (key == 0x0a) {
      value.first = take_bytes(bytes, take_varint(bytes));
    } else if (key == 0x15) {
      value.second = take<float>(bytes);
    } else {
      throw std::runtime_error("unknown field of a value");
    }
  }
  return value;
}

// Takes one record off the front of `file` and checks its checksums.
Event take_event(std::string& file) {
  const std::string length_bytes = file.substr(0, 8);
  const auto length = take<uint64_t>(file);
  EXPECT_EQ(take<uint32_t>(file), masked(crc32c(length_bytes)));
  std::string bytes = take_bytes(file, length);
  EXPECT_EQ(take<uint32_t>(file), masked(crc32c(bytes)));
  Event event;
  while (!bytes.empty()) {
    switch (take_varint(bytes)) {
      case 0x09: event.wall_time = take<double>(bytes); break;
      case 0x10: event.step = static_cast<int64_t>(take_varint(bytes)); break;
      case 0x1a: event.version = take_bytes(bytes, take_varint(bytes)); break;
      case 0x2a:
        for (std::string summary = take_bytes(bytes, take_varint(bytes)); !summary.empty();) {
          EXPECT_EQ(take_varint(summary), 0x0aU);
          event.scalars.insert(decode_value(take_bytes(summary, take_varint(summary))));
        }
        break;
      default: throw std::runtime_error("unknown field of an event");
    }
  }
  return event;
}

TEST(TensorBoard, HeaderIsThisRecord) {
  // The record is: length 24, its checksum, wall_time 1.0, "brain.Event:2", checksum of the payload.
  const std::string payload =
      std::string("\x09\x00\x00\x00\x00\x00\x00\xf0\x3f\x1a\x0d", 11) + "brain.Event:2";
  const std::string record = tensorboard_header(1.0);
  ASSERT_EQ(record.size(), 8 + 4 + payload.size() + 4);
  EXPECT_EQ(record.substr(0, 8), std::string("\x18\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, payload.size()), payload);
  std::string rest = record;
  EXPECT_EQ(take_event(rest).version, "brain.Event:2");
  EXPECT_TRUE(rest.empty());
}

TEST(TensorBoard, EventsDecode) {
  std::string record =
      tensorboard_event(12.5, int64_t{1} << 40, {{"a/b", 0.25F}, {std::string(300, 'x'), -3.0F}});
  const Event event = take_event(record);
  EXPECT_TRUE(record.empty());
  EXPECT_EQ(event.wall_time, 12.5);
  EXPECT_EQ(event.step, int64_t{1} << 40);
  EXPECT_EQ(event.scalars, (std::map<std::string, float>{{"a/b", 0.25F}, {std::string(300, 'x'), -3.0F}}));
}

// Returns the values of a repeated field.
std::vector<std::string> values_of(const std::multimap<int, std::string>& fields, int number) {
  std::vector<std::string> values;
  const auto [begin, end] = fields.equal_range(number);
  for (auto at = begin; at != end; ++at) values.push_back(at->second);
  return values;
}

TEST(TensorBoard, SamplesAreATableOfTexts) {
  std::string record =
      tensorboard_samples(12.5, 7, {{"", "<s>a\n\nb", "c", "*d*", "stop"}, {"", "e", "", "f", "length"}});
  const auto size = take<uint64_t>(record);
  take<uint32_t>(record);
  ASSERT_EQ(record.size(), size + 4);
  take_bytes(record, 9);  // the time
  const auto event = fields_of(take_bytes(record, size - 9));
  EXPECT_EQ(event.find(2)->second, "7");
  const auto value = fields_of(fields_of(event.find(5)->second).find(1)->second);
  EXPECT_EQ(value.find(1)->second, "eval/samples");
  EXPECT_EQ(fields_of(fields_of(value.find(9)->second).find(1)->second).find(1)->second, "text");
  const auto tensor = fields_of(value.find(8)->second);
  EXPECT_EQ(tensor.find(1)->second, "7") << "DT_STRING";
  std::vector<std::string> sizes;
  for (const std::string& dim : values_of(fields_of(tensor.find(2)->second), 2))
    sizes.push_back(fields_of(dim).find(1)->second);
  EXPECT_EQ(sizes, (std::vector<std::string>{"3", "5"}));
  // Lines that begin with four spaces are code in Markdown, and shown as they are.
  EXPECT_EQ(values_of(tensor, 8),
            (std::vector<std::string>{"dataset", "prompt", "expected", "generated", "finish",           //
                                      "    ", "    <s>a\n    \n    b", "    c", "    *d*", "    stop",  //
                                      "    ", "    e", "    ", "    f", "    length"}));
}

StepMetrics example() {
  StepMetrics metrics;
  metrics.step = 12;
  metrics.epoch = 0.6;
  metrics.loss = 1.2345;
  metrics.lr = 1.8e-4;
  metrics.grad_norm = 0.75;
  metrics.tokens = 2000;
  metrics.tokens_seen = 2096000;
  metrics.label_tokens = 900;
  metrics.step_s = 3.90625;
  metrics.data_wait_s = 0.125;
  metrics.tokens_per_s = 512.0;
  metrics.sol = 0.71;
  metrics.mfu = 0.5;
  metrics.hfu = 0.625;
  metrics.traffic["fsdp"] = {4096, 0.25};
  metrics.peak_rss = 1503238553;
  return metrics;
}

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The writers of a run's logs in `folder`, as the first rank has them.
struct Writers {
  explicit Writers(const std::string& folder) : logs(folder) {}
  void write(const StepMetrics& line) {
    lines.on_line(line);
    events.on_line(line);
  }
  void write_eval(int64_t step, double loss) {
    lines.on_evaluation(step, {.loss = loss});
    events.on_evaluation(step, {.loss = loss});
  }
  RunLogs logs;
  MetricsFile lines{logs};
  TensorBoardFile events{logs};
};

TEST(RunLogs, WritesLinesAndEvents) {
  const testing::TempFolder folder;
  {
    Writers writer(folder.path());
    writer.write(example());
    writer.write_eval(12, 2.5);
    // The file is complete while the run goes on.
    const std::string text = file_text(folder / "metrics.jsonl");
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  }
  std::ifstream lines(folder / "metrics.jsonl");
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(nlohmann::json::parse(line),
            (nlohmann::json{{"step", 12},
                            {"epoch", 0.6},
                            {"loss", 1.2345},
                            {"lr", 1.8e-4},
                            {"grad_norm", 0.75},
                            {"tokens", 2000},
                            {"tokens_seen", 2096000},
                            {"label_tokens", 900},
                            {"tokens_per_s", 512.0},
                            {"step_s", 3.90625},
                            {"data_wait_s", 0.125},
                            {"sol", 0.71},
                            {"mfu", 0.5},
                            {"hfu", 0.625},
                            {"traffic", {{"fsdp", {{"bytes_sent", 4096}, {"wait_s", 0.25}}}}},
                            {"peak_rss", 1503238553}}));
  std::getline(lines, line);
  EXPECT_EQ(nlohmann::json::parse(line), (nlohmann::json{{"step", 12}, {"eval_loss", 2.5}}));

  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "runs"))
    names.push_back(entry.path());
  ASSERT_EQ(names.size(), 1U);
  EXPECT_THAT(names[0], HasSubstr("/events.out.tfevents."));
  std::string events = file_text(names[0]);
  EXPECT_EQ(take_event(events).version, "brain.Event:2");
  const Event step = take_event(events), eval = take_event(events);
  EXPECT_TRUE(events.empty());
  EXPECT_EQ(step.step, 12);
  EXPECT_EQ(step.scalars.at("train/loss"), 1.2345F);
  EXPECT_EQ(step.scalars.at("train/learning_rate"), 1.8e-4F);
  EXPECT_EQ(step.scalars.at("train/grad_norm"), 0.75F);
  EXPECT_EQ(eval.scalars, (std::map<std::string, float>{{"eval/loss", 2.5F}}));
}

TEST(RunLogs, StartsAnew) {
  const testing::TempFolder folder;
  for (int run = 0; run < 2; ++run) {
    Writers writer(folder.path());
    writer.write_eval(run, 1.0);
  }
  EXPECT_EQ(file_text(folder / "metrics.jsonl"), "{\"step\":1,\"eval_loss\":1.0}\n");
}

TEST(RunLogs, ReportsAFolderThatCannotBe) {
  const testing::TempFolder folder;
  std::ofstream(folder / "file") << "x";
  try {
    Writers writer(folder / "file");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Storage) << error.what();
  }
}

TEST(RunLogs, AFullDiskDoesNotStopTheRunNorBreakALine) {
  const testing::TempFolder folder;
  Writers writer(folder.path());
  writer.write(example());
  io::disk::set_hook([](std::string_view call, const std::string&) { return call == "write" ? ENOSPC : 0; });
  ::testing::internal::CaptureStderr();
  writer.write(example());
  writer.write(example());
  io::disk::set_hook(nullptr);
  const std::string warning = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(warning, HasSubstr("metrics.jsonl"));
  EXPECT_THAT(warning, HasSubstr("training continues"));
  EXPECT_EQ(warning.find("training continues"), warning.rfind("training continues")) << "once";
  writer.write_eval(12, 2.5);
  std::ifstream lines(folder / "metrics.jsonl");
  std::vector<nlohmann::json> read;
  for (std::string line; std::getline(lines, line);) read.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[1], (nlohmann::json{{"step", 12}, {"eval_loss", 2.5}}));
}

TEST(MetricsWindow, WeighsTheLossByLabelTokensAndTheRatesByTime) {
  MetricsWindow window;
  StepMetrics step = example();
  for (const auto& [loss, labels, seconds, sol] :
       {std::tuple{4.0, 30, 1.0, 0.5}, std::tuple{2.0, 10, 3.0, 0.9}, std::tuple{1.0, 0, 2.0, 0.1}}) {
    ++step.step;
    step.loss = loss;
    step.label_tokens = labels;
    step.tokens = 60;
    step.step_s = seconds;
    step.sol = sol;
    step.routers = {loss, 2.0 * loss};
    window = MetricsWindow::from_json(window.to_json());  // as a run that goes on reads it
    window.add(step);
  }
  const StepMetrics line = window.take();
  EXPECT_EQ(line.step, step.step);
  EXPECT_DOUBLE_EQ(line.loss, (4.0 * 30 + 2.0 * 10) / 40);
  EXPECT_DOUBLE_EQ(line.routers.value().balance, line.loss);
  EXPECT_DOUBLE_EQ(line.routers.value().z_loss, 2.0 * line.loss);
  EXPECT_EQ(line.label_tokens, 40);
  EXPECT_EQ(line.tokens, 180);
  EXPECT_DOUBLE_EQ(line.step_s, 2.0);
  EXPECT_DOUBLE_EQ(line.tokens_per_s, 30.0);
  EXPECT_NEAR(line.sol, (0.5 * 1 + 0.9 * 3 + 0.1 * 2) / 6, 1e-12);
  // The next window starts anew; a window of one step has the numbers of that step.
  window.add(step);
  EXPECT_DOUBLE_EQ(window.take().tokens_per_s, 30.0);
}

TEST(Progress, Line) {
  EXPECT_EQ(
      progress_line(example(), 40, 200.0),
      "step 12/40  epoch 0.60  loss 1.2345  lr 1.80e-04  2.10M tokens  512 tokens/s  71% of roofline  1.4 "
      "GiB  left 3m20s");
}

}  // namespace
}  // namespace tessera::train
