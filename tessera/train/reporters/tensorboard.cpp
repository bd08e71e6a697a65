#include "tessera/train/reporters/tensorboard.h"

#include <array>
#include <chrono>
#include <cstring>

#include <unistd.h>

namespace tessera::train {
namespace {

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string events_name(double now) {
  return "runs/events.out.tfevents." + std::to_string(static_cast<int64_t>(now)) + "." +
         std::to_string(getpid());
}

void add_datasets(const std::string& prefix, const std::vector<DatasetLoss>& datasets,
                  std::vector<std::pair<std::string, float>>& scalars) {
  for (const DatasetLoss& dataset : datasets)
    scalars.emplace_back(prefix + dataset.name, static_cast<float>(dataset.loss));
}

// Protobuf wire format, by hand: five fields are not worth a second protobuf beside LibTorch's.
void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, int field, int wire_type) {
  put_varint(out, static_cast<uint64_t>(field << 3 | wire_type));
}

template <class T>
void put_raw(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);  // little-endian machines only, as all that LibTorch serves here
  out.append(bytes, sizeof value);
}

void put_bytes(std::string& out, int field, const std::string& bytes) {
  put_key(out, field, 2);
  put_varint(out, bytes.size());
  out += bytes;
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

// message Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
std::string tensorboard_header(double wall_time) {
  std::string event;
  put_key(event, 1, 1);
  put_raw(event, wall_time);
  put_bytes(event, 3, "brain.Event:2");
  return framed(event);
}

// message Summary { repeated Value value = 1; }   message Value { string tag = 1; float simple_value = 2; }
std::string tensorboard_event(double wall_time, int64_t step,
                              const std::vector<std::pair<std::string, float>>& scalars) {
  std::string summary;
  for (const auto& [tag, number] : scalars) {
    std::string value;
    put_bytes(value, 1, tag);
    put_key(value, 2, 5);
    put_raw(value, number);
    put_bytes(summary, 1, value);
  }
  std::string event;
  put_key(event, 1, 1);
  put_raw(event, wall_time);
  put_key(event, 2, 0);
  put_varint(event, static_cast<uint64_t>(step));
  put_bytes(event, 5, summary);
  return framed(event);
}

TensorBoardFile::TensorBoardFile(RunLogs& logs)
    : logs_(logs), file_(logs.open(events_name(wall_time()), "events")) {
  if (file_.is_empty()) logs_.append(file_, tensorboard_header(wall_time()));
}

void TensorBoardFile::on_line(const StepMetrics& line) {
  std::vector<std::pair<std::string, float>> scalars = {
      {"train/loss", static_cast<float>(line.loss)},
      {"train/learning_rate", static_cast<float>(line.lr)},
      {"train/grad_norm", static_cast<float>(line.grad_norm)},
      {"train/tokens_per_s", static_cast<float>(line.tokens_per_s)},
      {"train/epoch", static_cast<float>(line.epoch)},
      {"train/peak_rss_gib", static_cast<float>(line.peak_rss / 1073741824.0)}};
  add_datasets("train/loss/", line.datasets, scalars);
  logs_.append(file_, tensorboard_event(wall_time(), line.step, scalars));
}

void TensorBoardFile::on_evaluation(int64_t step, double loss, const std::vector<DatasetLoss>& datasets) {
  std::vector<std::pair<std::string, float>> scalars = {{"eval/loss", static_cast<float>(loss)}};
  add_datasets("eval/loss/", datasets, scalars);
  logs_.append(file_, tensorboard_event(wall_time(), step, scalars));
}

}  // namespace tessera::train
