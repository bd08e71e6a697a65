#include "tessera/train/reporters/wandb.h"

#include <ctime>
#include <random>

#include <nlohmann/json.hpp>
#include <zlib.h>

#include "tessera/config/load_recipe.h"
#include "tessera/core/host_name.h"
#include "tessera/core/sha256.h"
#include "tessera/core/unix_time.h"
#include "tessera/io/file.h"
#include "tessera/train/reporters/protobuf.h"

namespace tessera::train {
namespace {

using protobuf::put_bytes;
using protobuf::put_int;
using protobuf::put_raw;

// Checkpoints keep the file under a name that is this and the number.
constexpr const char* kKeptAs = "wandb-";
// The version of a wandb library that reads all that is written here.
constexpr const char* kProducer = "0.13.0";

std::string number_of_run(const RunLogs& logs) {
  const std::string kept = logs.kept_name(kKeptAs);
  if (!kept.empty()) return kept.substr(std::string(kKeptAs).size());
  return std::to_string(10000000 + std::random_device()() % 90000000);
}

std::string file_name(const std::string& number) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d_%H%M%S", &local);
  return "wandb/offline-run-" + std::string(text) + "-" + number + "/run-" + number + ".wandb";
}

// Returns a message ConfigItem or HistoryItem { string key = 1; string value_json = 16; }.
std::string item(const std::string& key, const std::string& json) {
  std::string out;
  put_bytes(out, 1, key);
  put_bytes(out, 16, json);
  return out;
}

// Numbers of records must rise, and a step may have a line and an evaluation: each has a number of its own,
// that of a line twice its step.
int64_t number_of_evaluation(int64_t step) { return 2 * step + 1; }

std::string json_of(double value) { return nlohmann::json(value).dump(); }

// Returns a value of the recipe's YAML as JSON; one that is no JSON becomes a string.
std::string json_of(const std::string& value) {
  return nlohmann::json::accept(value) ? value : nlohmann::json(value).dump();
}

std::string framed_part(std::string_view data, char type) {
  uint32_t crc = static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(&type), 1));
  crc = static_cast<uint32_t>(
      crc32(crc, reinterpret_cast<const Bytef*>(data.data()), static_cast<uInt>(data.size())));
  std::string out;
  put_raw(out, crc);
  put_raw(out, static_cast<uint16_t>(data.size()));
  return out + type + std::string(data);
}

// Returns message Record { int64 num = 1; HeaderRecord header = 21; }
// with HeaderRecord { VersionInfo version_info = 1; }.
std::string header_record() {
  std::string version, header, record;
  put_bytes(version, 1, kProducer);
  put_bytes(version, 2, kProducer);
  put_bytes(header, 1, version);
  put_int(record, 1, 1);
  put_bytes(record, 21, header);
  return record;
}

// Returns message Record { RunRecord run = 17; }
// with RunRecord { string run_id = 1, entity = 2, project = 3; ConfigRecord config = 4;
//                  string display_name = 8, host = 13; Timestamp start_time = 17; }
// and ConfigRecord { ConfigItem update = 1; }.
std::string run_record(const config::Recipe& recipe, const std::string& number, double begin) {
  std::string settings;
  for (const auto& [key, value] : config::top_level_values(config::dump_recipe(recipe))) {
    put_bytes(settings, 1, item(key, json_of(value)));
  }
  std::string run, time, record;
  put_bytes(run, 1, recipe.wandb_run_id.empty() ? number : recipe.wandb_run_id);
  if (!recipe.wandb_entity.empty()) put_bytes(run, 2, recipe.wandb_entity);
  put_bytes(run, 3, recipe.wandb_project.empty() ? "tessera" : recipe.wandb_project);
  put_bytes(run, 4, settings);
  if (!recipe.wandb_name.empty()) put_bytes(run, 8, recipe.wandb_name);
  put_bytes(run, 13, host_name());
  put_int(time, 1, static_cast<int64_t>(begin));
  put_bytes(run, 17, time);
  put_int(record, 1, 2);
  put_bytes(record, 17, run);
  return record;
}

}  // namespace

bool wants_wandb(const config::TrackerConfig& keys) {
  return keys.use_wandb.value_or(!keys.wandb_project.empty()) && keys.wandb_mode != "disabled";
}

// Returns struct { char ident[4]; uint16 magic; uint8 version; }.
std::string wandb_file_header() { return std::string(":W&B\xE1\xBE\0", 7); }

std::string wandb_framed(std::string_view record, int64_t offset) {
  constexpr int64_t kBlock = 32768, kHeader = 7;
  enum Type : char { kFull = 1, kFirst, kMiddle, kLast };
  std::string out;
  for (bool is_first = true; is_first || !record.empty(); is_first = false) {
    int64_t room = kBlock - (offset + static_cast<int64_t>(out.size())) % kBlock;
    if (room < kHeader) {
      out.append(static_cast<size_t>(room), '\0');
      room = kBlock;
    }
    const std::string_view part = record.substr(0, static_cast<size_t>(room - kHeader));
    record.remove_prefix(part.size());
    const bool is_last = record.empty();
    out += framed_part(part, is_first ? (is_last ? kFull : kFirst) : (is_last ? kLast : kMiddle));
  }
  return out;
}

WandbFile::WandbFile(RunLogs& logs, const config::Recipe& recipe)
    : logs_(logs),
      number_(number_of_run(logs)),
      name_(file_name(number_)),
      file_(logs.open(name_, kKeptAs + number_)),
      begin_(unix_time_s()) {
  if (!file_.is_empty()) {
    for (const auto& [step, rows] : rows_of_samples_file(logs.kept("samples.jsonl")))
      add_table(step, rows, /*is_new=*/false);
    return;
  }
  logs_.append(file_, wandb_file_header());
  append(header_record());
  append(run_record(recipe, number_, begin_));
}

void WandbFile::append(const std::string& record) { logs_.append(file_, wandb_framed(record, file_.size())); }

// Writes message Record { HistoryRecord history = 2; }
// with HistoryRecord { HistoryItem item = 1; HistoryStep step = 2; }.
void WandbFile::add(int64_t number, int64_t step, const Scalars& scalars, const std::string& table) {
  std::string history, number_text, record;
  for (const auto& [name, value] : scalars) put_bytes(history, 1, item(name, json_of(value)));
  if (!table.empty()) put_bytes(history, 1, item(kSamplesTag, table));
  const double now = unix_time_s();
  put_bytes(history, 1, item("train/global_step", std::to_string(step)));
  put_bytes(history, 1, item("_step", std::to_string(number)));
  put_bytes(history, 1, item("_timestamp", json_of(now)));
  put_bytes(history, 1, item("_runtime", json_of(now - begin_)));
  put_int(number_text, 1, number);
  put_bytes(history, 2, number_text);
  put_int(record, 1, number + 3);
  put_bytes(record, 2, history);
  append(record);
}

// Writes message Record { FilesRecord files = 6; } with FilesRecord { FilesItem files = 1; } and
// FilesItem { string path = 1; }, whose policy is to upload the file at once.
std::string WandbFile::add_table(int64_t step, const SampleRows& rows, bool is_new) {
  const std::string text = table_text(rows);
  Sha256 hash;
  hash.add(text);
  const std::string hex = hash.hex();
  const std::string path = std::string("media/table/") + kSamplesTag + "_" +
                           std::to_string(number_of_evaluation(step)) + "_" + hex.substr(0, 20) +
                           ".table.json";
  if (!logs_.write(io::join_path(io::parent_path(name_), "files/" + path), text)) return "";
  if (is_new) {
    std::string file, files, record;
    put_bytes(file, 1, path);
    put_bytes(files, 1, file);
    put_bytes(record, 6, files);
    append(record);
  }
  return nlohmann::ordered_json{{"_type", "table-file"}, {"ncols", sample_columns().size()},
                                {"nrows", rows.size()},  {"sha256", hex},
                                {"size", text.size()},   {"path", path}}
      .dump();
}

void WandbFile::on_line(const StepMetrics& line) { add(2 * line.step, line.step, scalars_of(line)); }

void WandbFile::on_evaluation(int64_t step, const Evaluated& evaluated) {
  const std::string table =
      evaluated.samples.empty() ? "" : add_table(step, sample_rows(step, evaluated.samples), /*is_new=*/true);
  add(number_of_evaluation(step), step, scalars_of_evaluation(evaluated), table);
}

}  // namespace tessera::train
