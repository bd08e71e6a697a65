#include "tessera/train/reporters/tensorboard.h"

#include <array>

#include <unistd.h>

#include "tessera/core/unix_time.h"
#include "tessera/train/reporters/protobuf.h"

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

// Writes message Event {
//   double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5;
// }.
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
  std::string event;
  put_number(event, 1, wall_time);
  put_int(event, 2, step);
  put_bytes(event, 5, summary);
  return framed(event);
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
}

}  // namespace tessera::train
