#include "tessera/data/kept_plan.h"

#include <cstring>
#include <filesystem>
#include <numeric>
#include <optional>
#include <vector>

#include "tessera/core/content_hash.h"
#include "tessera/core/error.h"
#include "tessera/io/file.h"

namespace tessera::data {
namespace {

// Raise it when the same lengths make another plan, or the same rows other marks.
constexpr int64_t kVersion = 2;

// Returns the bytes of the file: the number of sequences, the hash of what follows, offsets, items.
std::string to_bytes(const PackPlan& plan) {
  const int64_t size = plan.size();
  const auto bytes_of = [](const std::vector<int64_t>& values) {
    return std::string_view(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t));
  };
  ContentHash hash;
  hash.add(bytes_of(plan.offsets));
  hash.add(bytes_of(plan.items));
  const int64_t head[] = {size, static_cast<int64_t>(hash.value())};
  std::string bytes(reinterpret_cast<const char*>(head), sizeof head);
  bytes.reserve(bytes.size() + (plan.offsets.size() + plan.items.size()) * sizeof(int64_t));
  bytes += bytes_of(plan.offsets);
  bytes += bytes_of(plan.items);
  return bytes;
}

// Returns the plan of a file, or nothing unless every item is in exactly one sequence and every sequence has
// room for its items.
std::optional<PackPlan> from_bytes(std::string_view bytes, std::span<const int64_t> lengths,
                                   int64_t capacity) {
  const auto num_items = static_cast<int64_t>(lengths.size());
  int64_t head[2] = {};
  if (bytes.size() < sizeof head) return std::nullopt;
  std::memcpy(head, bytes.data(), sizeof head);
  bytes.remove_prefix(sizeof head);
  const int64_t size = head[0];
  if (size < 0 || size > num_items) return std::nullopt;
  if (bytes.size() != static_cast<size_t>(size + 1 + num_items) * sizeof(int64_t)) return std::nullopt;
  PackPlan plan;
  plan.offsets.resize(static_cast<size_t>(size) + 1);
  plan.items.resize(lengths.size());
  const size_t offset_bytes = plan.offsets.size() * sizeof(int64_t);
  ContentHash hash;
  hash.add(bytes.substr(0, offset_bytes));
  hash.add(bytes.substr(offset_bytes));
  if (static_cast<int64_t>(hash.value()) != head[1]) return std::nullopt;
  std::memcpy(plan.offsets.data(), bytes.data(), offset_bytes);
  if (num_items > 0) std::memcpy(plan.items.data(), bytes.data() + offset_bytes, bytes.size() - offset_bytes);

  if (plan.offsets.front() != 0 || plan.offsets.back() != num_items) return std::nullopt;
  std::vector<bool> is_packed(lengths.size(), false);
  for (int64_t i = 0; i < size; ++i) {
    if (plan.offsets[i + 1] < plan.offsets[i] || plan.offsets[i + 1] > num_items) return std::nullopt;
    int64_t room = capacity;
    for (const int64_t item : plan.sequence(i)) {
      if (item < 0 || item >= num_items || is_packed[item]) return std::nullopt;
      is_packed[item] = true;
      room -= lengths[item];
    }
    if (room < 0) return std::nullopt;
  }
  return plan;
}

std::string to_bytes(const std::vector<uint8_t>& marks) {
  std::string bytes(marks.begin(), marks.end());
  ContentHash hash;
  hash.add(bytes);
  const uint64_t value = hash.value();
  return bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::optional<std::vector<uint8_t>> from_bytes(std::string_view bytes, size_t num_rows) {
  uint64_t value = 0;
  if (bytes.size() != num_rows + sizeof value) return std::nullopt;
  std::memcpy(&value, bytes.data() + num_rows, sizeof value);
  bytes.remove_suffix(sizeof value);
  ContentHash hash;
  hash.add(bytes);
  if (hash.value() != value) return std::nullopt;
  return std::vector<uint8_t>(bytes.begin(), bytes.end());
}

// Returns what read() makes of the file at `path`; if there is no file or read() gives nothing, returns what
// make() gives, and keeps that in the file.
template <class Value>
Value kept(const std::string& path, int64_t most_bytes,
           const std::function<std::optional<Value>(std::string_view)>& read,
           const std::function<Value()>& make) {
  try {
    if (io::exists(path)) {
      if (auto value = read(io::read_file(path, most_bytes))) return *std::move(value);
    }
  } catch (const Error&) {
    // A file that cannot be read is no error: the value is made again.
  }
  Value value = make();
  try {
    io::make_directories(std::filesystem::path(path).parent_path().string());
    io::write_file_atomic(path, to_bytes(value));
  } catch (const Error&) {
    // A file that cannot be written is no error: the value is made again the next time.
  }
  return value;
}

}  // namespace

PackPlan kept_plan(const std::string& folder, const std::string& way, std::span<const int64_t> lengths,
                   int64_t capacity, const std::function<PackPlan()>& pack) {
  if (folder.empty()) return pack();
  ContentHash key;
  key.add(way + ' ' + std::to_string(kVersion) + ' ' + std::to_string(capacity));
  key.add(lengths);
  const auto most_bytes = static_cast<int64_t>((2 * lengths.size() + 3) * sizeof(int64_t));
  return kept<PackPlan>(
      io::join_path(folder, key.text() + ".packed"), most_bytes,
      [&](std::string_view bytes) { return from_bytes(bytes, lengths, capacity); }, pack);
}

std::vector<uint8_t> kept_marks(const std::string& folder, const std::string& way,
                                std::span<const uint64_t> rows,
                                const std::function<std::vector<uint8_t>()>& find) {
  if (folder.empty()) return find();
  ContentHash key;
  key.add(way + ' ' + std::to_string(kVersion));
  key.add(rows);
  return kept<std::vector<uint8_t>>(
      io::join_path(folder, key.text() + ".marks"), static_cast<int64_t>(rows.size() + sizeof(uint64_t)),
      [&](std::string_view bytes) { return from_bytes(bytes, rows.size()); }, find);
}

}  // namespace tessera::data
