#include "tessera/train/reporters/tensorboard.h"

#include <array>

#include <unistd.h>

#include "tessera/core/unix_time.h"
#include "tessera/train/reporters/protobuf.h"
#include "tessera/train/reporters/sample_table.h"

namespace tessera::train {
namespace {

using protobuf::put_bytes;
using protobuf::put_int;
using protobuf::put_number;
using protobuf::put_raw;

std::string events_name(double now) {
  return "runs/events.out.tfevents." + std::to_string(static_cast<int64_t>(now)) + "." +
         std::to_string(getpid());
}

uint32_t masked_crc(const std::string& bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

std::string framed(const std::string& event) {
  std::string length, out;
  put_raw(length, static_cast<uint64_t>(event.size()));
  out = length;
  put_raw(out, masked_crc(length));
  out += event;
  put_raw(out, masked_crc(event));
  return out;
}

// Writes message Event {
//   double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5;
// }.
std::string event_of(double wall_time, int64_t step, const std::string& summary) {
  std::string event;
  put_number(event, 1, wall_time);
  put_int(event, 2, step);
  put_bytes(event, 5, summary);
  return framed(event);
}

// Returns Markdown that shows the text as it is: a block of code, whose lines begin with four spaces.
std::string verbatim(const std::string& text) {
  std::string out = "    ";
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "    ";
  }
  return out;
}

// Writes message TensorProto { DataType dtype = 1; TensorShapeProto tensor_shape = 2; bytes string_val = 8; }
// with TensorShapeProto { Dim dim = 2; } and Dim { int64 size = 1; }.
std::string table_tensor(const std::vector<std::string>& cells, int64_t columns) {
  constexpr int64_t kStrings = 7;
  std::string shape, tensor;
  for (const int64_t size : {std::ssize(cells) / columns, columns}) {
    std::string dim;
    put_int(dim, 1, size);
    put_bytes(shape, 2, dim);
  }
  put_int(tensor, 1, kStrings);
  put_bytes(tensor, 2, shape);
  for (const std::string& cell : cells) put_bytes(tensor, 8, cell);
  return tensor;
}

}  // namespace

uint32_t crc32c(const std::string& bytes) {
  static const std::array<uint32_t, 256> kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78U : 0U);
      table[i] = value;
    }
    return table;
  }();
  uint32_t crc = 0xffffffffU;
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

std::string tensorboard_header(double wall_time) {
  std::string event;
  put_number(event, 1, wall_time);
  put_bytes(event, 3, "brain.Event:2");
  return framed(event);
}

// Writes message Summary { repeated Value value = 1; }
// with message Value { string tag = 1; float simple_value = 2; }.
std::string tensorboard_event(double wall_time, int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [tag, number] : scalars) {
    std::string value;
    put_bytes(value, 1, tag);
    put_number(value, 2, static_cast<float>(number));
    put_bytes(summary, 1, value);
  }
  return event_of(wall_time, step, summary);
}

// Writes message Value { string tag = 1; TensorProto tensor = 8; SummaryMetadata metadata = 9; }
// with SummaryMetadata { PluginData plugin_data = 1; } and PluginData { string plugin_name = 1; }.
std::string tensorboard_samples(double wall_time, int64_t step, const std::vector<Sample>& samples) {
  // The event has the step already.
  std::vector<std::string> cells(sample_columns().begin() + 1, sample_columns().end());
  const auto columns = std::ssize(cells);
  for (const auto& row : sample_rows(step, samples)) {
    for (size_t i = 1; i < row.size(); ++i) cells.push_back(verbatim(row[i].get<std::string>()));
  }
  std::string plugin, metadata, value, summary;
  put_bytes(plugin, 1, "text");
  put_bytes(metadata, 1, plugin);
  put_bytes(value, 1, kSamplesTag);
  put_bytes(value, 8, table_tensor(cells, columns));
  put_bytes(value, 9, metadata);
  put_bytes(summary, 1, value);
  return event_of(wall_time, step, summary);
}

TensorBoardFile::TensorBoardFile(RunLogs& logs)
    : logs_(logs), file_(logs.open(events_name(unix_time_s()), "events")) {
  if (file_.is_empty()) logs_.append(file_, tensorboard_header(unix_time_s()));
}

void TensorBoardFile::on_line(const StepMetrics& line) {
  logs_.append(file_, tensorboard_event(unix_time_s(), line.step, scalars_of(line)));
}

void TensorBoardFile::on_evaluation(int64_t step, const Evaluated& evaluated) {
  logs_.append(file_, tensorboard_event(unix_time_s(), step, scalars_of_evaluation(evaluated)));
  if (!evaluated.samples.empty())
    logs_.append(file_, tensorboard_samples(unix_time_s(), step, evaluated.samples));
}

}  // namespace tessera::train
