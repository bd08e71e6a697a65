#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/io/disk_calls.h"
#include "tessera/train/reporters/mlflow.h"
#include "tessera/train/reporters/otlp.h"
#include "tessera/train/reporters/prometheus.h"
#include "tessera/train/reporters/samples_file.h"
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

// Computes CRC-32 (IEEE 802.3), bit by bit.
uint32_t crc_of(const std::string& bytes) {
  uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

// Returns the records of a file in LevelDB's log format, after a header of seven bytes.
std::vector<std::string> records_of(std::string file) {
  const size_t whole = file.size();
  EXPECT_EQ(take_bytes(file, 7), std::string(":W&B\xE1\xBE\0", 7));
  std::vector<std::string> records;
  std::string record;
  bool is_open = false;  // a record has begun; its first part may be empty
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
    EXPECT_EQ(is_open, type == 3 || type == 4);
    record += part;
    is_open = type == 2 || type == 3;
    if (is_open) continue;
    records.push_back(std::move(record));
    record.clear();
  }
  EXPECT_FALSE(is_open);
  return records;
}

// Returns the items of a history or a config, by key.
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
  wandb.on_evaluation(1, {2.5, 0, {{"chats", 2.25, 4}}});
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
  for (int64_t step = 1; step <= 300; ++step) wandb.on_line(line_of(step));  // fills more than one block
  const auto kept = logs.contents();
  ASSERT_EQ(kept.size(), 1U);
  wandb.on_line(line_of(301));  // comes after the checkpoint
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

Sample sample() { return {"chats", "<a>\nb", "c", "\xff|d", "stop"}; }

// A run that goes on finds its tables again, which checkpoints do not keep: they are made of samples.jsonl.
TEST(Wandb, SamplesAreATableBesideTheFile) {
  const TempFolder first, second;
  RunLogs logs(first.path());
  SamplesFile samples(logs);
  WandbFile wandb(logs, recipe());
  const Evaluated evaluated = {.loss = 2.5, .samples = {sample(), sample()}};
  samples.on_evaluation(4, evaluated);
  wandb.on_evaluation(4, evaluated);
  const auto kept = logs.contents();
  RunLogs again(second.path(), {kept.begin(), kept.end()});
  SamplesFile(again).on_evaluation(5, {});
  WandbFile resumed(again, recipe());
  for (const TempFolder* here : {&first, &second}) {
    std::map<std::string, std::string> files;  // by their ends
    for (const auto& entry : fs::recursive_directory_iterator(here->path())) {
      if (entry.is_regular_file()) files[entry.path().extension()] = entry.path();
    }
    const auto records = records_of(read_text(files.at(".wandb")));
    ASSERT_EQ(records.size(), 4U);
    const auto of_files = fields_of(fields_of(records[2]).find(6)->second);
    const std::string path = fields_of(of_files.find(1)->second).find(1)->second;
    const auto told = items_of(fields_of(records[3]).find(2)->second).at("eval/samples");
    EXPECT_EQ(told.at("_type"), "table-file");
    EXPECT_EQ(told.at("path"), path);
    EXPECT_EQ(told.at("nrows"), 2);
    EXPECT_EQ(files.at(".json"), (fs::path(files.at(".wandb")).parent_path() / "files" / path).string());
    const std::string text = read_text(files.at(".json"));
    EXPECT_EQ(told.at("size"), text.size());
    const auto table = nlohmann::json::parse(text);
    EXPECT_EQ(table.at("columns").size(), told.at("ncols"));
    EXPECT_EQ(table.at("data").at(1), (nlohmann::json{4, "chats", "<a>\nb", "c", "\ufffd|d", "stop"}));
  }
}

// Records end near, at and behind the end of a block, or span several blocks.
TEST(Wandb, FramesOfAnySize) {
  std::vector<std::string> written;
  std::string file = wandb_file_header();
  for (const size_t size : {0, 1, 32740, 5, 32761, 32760, 32754, 32747, 100000, 3}) {
    written.emplace_back(size, static_cast<char>('a' + written.size()));
    file += wandb_framed(written.back(), static_cast<int64_t>(file.size()));
  }
  EXPECT_EQ(records_of(file), written);
}

// A block that has room for a header alone gets a first part of no bytes.
TEST(Wandb, FramesThatBeginAtTheEndOfABlock) {
  for (size_t room = 0; room <= 14; ++room) {
    const std::vector<std::string> written = {std::string(32768 - 7 - 7 - room, 'a'), "bc",
                                              std::string(40000, 'd')};
    std::string file = wandb_file_header();
    for (const std::string& record : written) file += wandb_framed(record, static_cast<int64_t>(file.size()));
    EXPECT_EQ(records_of(file), written) << room;
  }
}

TEST(Prometheus, TextFormat) {
  const Scalars scalars = {{"train/loss", 1.5},
                           {"train/loss/a \"b\"\\c", 0.25},
                           {"eval/loss", 3},
                           {"eval/all::quiz/acc,first one", 0.5}};
  EXPECT_EQ(prometheus_text(scalars, "out"),
            "# TYPE tessera_eval_acc_first_one gauge\n"
            "tessera_eval_acc_first_one{run=\"out\",task=\"all::quiz\"} 0.5\n"
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
  file.on_evaluation(3, {.loss = 2.5});
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

// The messages are those of opentelemetry.proto.metrics.v1, by their JSON names.
TEST(Otlp, ALineIsARequestWithAGaugeForEachMetric) {
  const auto request = nlohmann::json::parse(
      otlp_line({{"train/loss", 1.5}, {"train/loss/a/b", 0.25}, {"train/mfu", std::nan("")}}, 7, "out", 123));
  const auto& of_resource = request.at("resourceMetrics").at(0);
  std::map<std::string, std::string> attributes;
  for (const auto& one : of_resource.at("resource").at("attributes"))
    attributes[one.at("key")] = one.at("value").at("stringValue");
  EXPECT_EQ(attributes.at("service.name"), "tessera");
  EXPECT_EQ(attributes.at("tessera.run"), "out");
  const auto& metrics = of_resource.at("scopeMetrics").at(0).at("metrics");
  ASSERT_EQ(metrics.size(), 2U);
  EXPECT_EQ(metrics[0].at("name"), "tessera.train.loss");
  const auto& points = metrics[0].at("gauge").at("dataPoints");
  ASSERT_EQ(points.size(), 2U);
  EXPECT_EQ(points[0].at("asDouble"), 1.5);
  EXPECT_EQ(points[0].at("timeUnixNano"), "123") << "64 bits are text";
  EXPECT_EQ(points[0].at("attributes").at(0).at("value").at("intValue"), "7");
  EXPECT_EQ(points[1].at("attributes").at(1).at("value").at("stringValue"), "a/b");
  EXPECT_EQ(metrics[1].at("gauge").at("dataPoints").at(0).at("asDouble"), "NaN");
}

TEST(Otlp, ARunThatGoesOnKeepsItsFile) {
  const TempFolder first, second;
  RunLogs logs(first.path());
  OtlpFile file(logs, recipe().output_dir);
  file.on_line(line_of(1));
  file.on_evaluation(1, {.loss = 2.5});
  const auto kept = logs.contents();
  RunLogs again(second.path(), {kept.begin(), kept.end()});
  OtlpFile resumed(again, recipe().output_dir);
  resumed.on_line(line_of(2));
  const std::string text = read_text(second / "otel/metrics.jsonl");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_TRUE(text.starts_with(read_text(first / "otel/metrics.jsonl")));
}

config::Recipe mlflow_recipe(const TempFolder& here) {
  config::Recipe recipe;
  recipe.base_model = "model";
  recipe.output_dir = here / "out";
  recipe.mlflow_tracking_uri = "file://" + here / "runs";
  recipe.mlflow_experiment_name = "it's an \"experiment\"";
  return recipe;
}

bool is_never_done() { return false; }

TEST(Mlflow, ARecipeThatNamesAnExperimentOrAPlaceWantsIt) {
  config::Recipe recipe;
  EXPECT_FALSE(wants_mlflow(recipe));
  recipe.mlflow_experiment_name = "x";
  EXPECT_TRUE(wants_mlflow(recipe));
  recipe.use_mlflow = false;
  EXPECT_FALSE(wants_mlflow(recipe));
}

// The expected contents were read once with MLflow's own library.
TEST(Mlflow, TheFolderHoldsTheRun) {
  const TempFolder here;
  std::string folder;
  TrainState state;
  bool is_done = false;
  {
    MlflowRun run(mlflow_recipe(here), 0, [&] { return is_done; });
    folder = run.folder();
    EXPECT_NE(read_text(folder + "/meta.yaml").find("\nstatus: 1\n"), std::string::npos);
    StepMetrics line = line_of(2);
    line.datasets = {{"a:b/c", 1.25, 10}};
    run.on_step(state, line);
    run.on_line(line);
    run.on_evaluation(2, {.loss = 2.5});
    is_done = true;
  }
  const std::string meta = read_text(folder + "/meta.yaml");
  EXPECT_NE(meta.find("\nstatus: 3\n"), std::string::npos) << meta;
  EXPECT_NE(meta.find("run_name: \"out\"\n"), std::string::npos) << meta;
  EXPECT_EQ(read_text(folder + "/params/base_model"), "model");
  const std::string loss = read_text(folder + "/metrics/train/loss");
  EXPECT_NE(loss.find(" 1.5 2\n"), std::string::npos) << loss;
  EXPECT_NE(read_text(folder + "/metrics/train/loss_of/a_b_c").find(" 1.25 2\n"), std::string::npos);
  EXPECT_NE(read_text(folder + "/metrics/eval/loss").find(" 2.5 2\n"), std::string::npos);
  // The next run joins the experiment.
  MlflowRun next(mlflow_recipe(here), 0, is_never_done);
  EXPECT_EQ(fs::path(next.folder()).parent_path(), fs::path(folder).parent_path());
  EXPECT_NE(next.folder(), folder);
}

TEST(Mlflow, ARunThatGoesOnTellsOfNoStepTwice) {
  const TempFolder here;
  std::string folder;
  const auto tell = [](MlflowRun& run, int64_t step) {
    run.on_line(line_of(step));
    run.on_evaluation(step, {.samples = {sample()}});
  };
  {
    MlflowRun run(mlflow_recipe(here), 0, is_never_done);
    folder = run.folder();
    for (int64_t step = 1; step <= 5; ++step) tell(run, step);
  }
  MlflowRun resumed(mlflow_recipe(here), 3, is_never_done);
  EXPECT_EQ(resumed.folder(), folder);
  for (int64_t step = 4; step <= 6; ++step) tell(resumed, step);
  EXPECT_EQ(read_text(folder + "/tags/mlflow.loggedArtifacts"),
            R"([{"path":"eval_samples.json","type":"table"}])");
  const auto table = nlohmann::json::parse(read_text(folder + "/artifacts/eval_samples.json"));
  ASSERT_EQ(table.at("data").size(), 6U);
  for (int64_t step = 1; step <= 6; ++step) EXPECT_EQ(table["data"][static_cast<size_t>(step - 1)][0], step);
  EXPECT_EQ(table["data"][5], (nlohmann::json{6, "chats", "<a>\nb", "c", "\ufffd|d", "stop"}));
  std::istringstream lines(read_text(folder + "/metrics/train/loss"));
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);)
    EXPECT_TRUE(line.ends_with(" " + std::to_string(++number))) << line;
  EXPECT_EQ(number, 6);
}

TEST(Mlflow, APlaceThatCannotBeWrittenAnyMoreStopsNothing) {
  const TempFolder here;
  MlflowRun run(mlflow_recipe(here), 0, is_never_done);
  fs::remove_all(run.folder());
  std::ofstream(run.folder()) << "a file";
  ::testing::internal::CaptureStderr();
  EXPECT_NO_THROW(run.on_line(line_of(1)));
  EXPECT_NO_THROW(run.on_line(line_of(2)));
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
  EXPECT_NE(told.find("training continues"), std::string::npos) << told;
}

// ------------------------------------------------------------------------------------ disks that do not
// write

int64_t count(const std::string& text, const std::string& part) {
  int64_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

struct DiskThatFails {
  explicit DiskThatFails(int cause) {
    io::disk::set_hook([cause](std::string_view, const std::string&) { return cause; });
  }
  ~DiskThatFails() { io::disk::set_hook(nullptr); }
};

TEST(Trackers, ADiskThatIsFullOrReadOnlyStopsNoneThatHasBegun) {
  for (const int cause : {ENOSPC, EROFS, EIO}) {
    const TempFolder here;
    RunLogs logs(here.path());
    ::testing::internal::CaptureStderr();
    {
      WandbFile wandb(logs, recipe());
      OtlpFile otlp(logs, recipe().output_dir);
      PrometheusFile prometheus(here / "run.prom", "out");
      MlflowRun mlflow(mlflow_recipe(here), 0, is_never_done);
      TrainState state;
      StepMetrics line = line_of(1);
      mlflow.on_step(state, line);
      const DiskThatFails disk(cause);
      for (int64_t step = 1; step <= 3; ++step) {
        for (Reporter* tracker : std::initializer_list<Reporter*>{&wandb, &otlp, &prometheus, &mlflow}) {
          EXPECT_NO_THROW(tracker->on_line(line_of(step)));
          EXPECT_NO_THROW(tracker->on_evaluation(
              step, {.loss = 2.5, .datasets = {{"chats", 2.25, 4}}, .samples = {sample()}}));
        }
      }
    }
    const std::string told = ::testing::internal::GetCapturedStderr();
    // There is one message for the run's own files, and one for each other place.
    EXPECT_EQ(count(told, "training continues"), 3) << told;
    EXPECT_EQ(count(told, "can no longer be written for MLflow"), 1) << told;
  }
}

// Each of the disk calls at the run's beginning fails once: the run gets a storage error, or none.
TEST(Trackers, ADiskThatFailsAtTheBeginningGivesOneErrorOfStorage) {
  const TempFolder here;
  RunLogs logs(here.path());
  int64_t begun = 0, refused = 0;
  for (int64_t nth = 0; begun == 0; ++nth) {
    ASSERT_LT(nth, 200);
    fs::remove_all(here / "runs");
    int64_t calls = 0;
    io::disk::set_hook([&](std::string_view, const std::string&) { return calls++ == nth ? ENOSPC : 0; });
    try {
      const MlflowRun run(mlflow_recipe(here), 0, is_never_done);
      if (calls <= nth) ++begun;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Storage) << error.what();
      ++refused;
    }
    io::disk::set_hook(nullptr);
  }
  EXPECT_GT(refused, 5);
  const DiskThatFails disk(EROFS);
  EXPECT_THROW(WandbFile(logs, recipe()), Error);
  EXPECT_THROW(OtlpFile(logs, recipe().output_dir), Error);
}

TEST(SamplesFileTest, TerminalsActOnNothingAndReadersGetTheTexts) {
  const TempFolder here;
  RunLogs logs(here.path(), {{"samples.jsonl", "{\"step\":1}\n"}});
  SamplesFile file(logs);
  const Sample sample = {"d", "\x1b[31m\n\x7f", "\u009b\u202e", "h\u00e9 \xff", "stop"};
  file.on_evaluation(2, {.samples = {sample, {"", "a", "b", "c", "length"}}});
  file.on_evaluation(3, {});
  EXPECT_EQ(
      read_text(here / "samples.jsonl"),
      "{\"step\":1}\n"
      "{\"step\":2,\"dataset\":\"d\",\"prompt\":\"\\u001b[31m\\n\\u007f\",\"expected\":\"\\u009b\\u202e\","
      "\"generated\":\"h\u00e9 \ufffd\",\"finish\":\"stop\"}\n"
      "{\"step\":2,\"prompt\":\"a\",\"expected\":\"b\",\"generated\":\"c\",\"finish\":\"length\"}\n");
}

}  // namespace
}  // namespace tessera::train
