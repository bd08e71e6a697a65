#include "tessera/io/gguf_writer.h"

#include <type_traits>

#include "tessera/core/error.h"
#include "tessera/io/file.h"
#include "tessera/io/gguf_header.h"
#include "tessera/io/leftovers.h"

namespace tessera::io {
namespace {

// Data and tensors begin on multiples of this, the format's default.
constexpr int64_t kAlignment = 32;
constexpr uint32_t kVersion = 3;

int64_t aligned(int64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

template <class T>
void put(std::string& bytes, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_text(std::string& bytes, std::string_view text) {
  put(bytes, static_cast<uint64_t>(text.size()));
  bytes += text;
}

void put_key(std::string& bytes, std::string_view key, GgufType type) {
  put_text(bytes, key);
  put(bytes, static_cast<uint32_t>(type));
}

void put_array_key(std::string& bytes, std::string_view key, GgufType type, size_t count) {
  put_key(bytes, key, GgufType::Array);
  put(bytes, static_cast<uint32_t>(type));
  put(bytes, static_cast<uint64_t>(count));
}

template <class T>
void put_numbers(std::string& bytes, std::span<const T> values) {
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

// Frees the space of what a killed process has left beside the file.
std::string cleared(const std::string& path) {
  remove_leftovers(path);
  return path;
}

}  // namespace

void GgufMetadata::add(std::string_view key, uint32_t value) {
  put_key(bytes_, key, GgufType::U32);
  put(bytes_, value);
  ++count_;
}
void GgufMetadata::add(std::string_view key, float value) {
  put_key(bytes_, key, GgufType::F32);
  put(bytes_, value);
  ++count_;
}
void GgufMetadata::add(std::string_view key, bool value) {
  put_key(bytes_, key, GgufType::Bool);
  put(bytes_, static_cast<char>(value));
  ++count_;
}
void GgufMetadata::add(std::string_view key, std::string_view value) {
  put_key(bytes_, key, GgufType::String);
  put_text(bytes_, value);
  ++count_;
}
void GgufMetadata::add(std::string_view key, std::span<const std::string> values) {
  put_array_key(bytes_, key, GgufType::String, values.size());
  for (const std::string& value : values) put_text(bytes_, value);
  ++count_;
}
void GgufMetadata::add(std::string_view key, std::span<const int32_t> values) {
  put_array_key(bytes_, key, GgufType::I32, values.size());
  put_numbers(bytes_, values);
  ++count_;
}
void GgufMetadata::add(std::string_view key, std::span<const float> values) {
  put_array_key(bytes_, key, GgufType::F32, values.size());
  put_numbers(bytes_, values);
  ++count_;
}

int64_t GgufTensorSpec::num_rows() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

int64_t GgufTensorSpec::row_bytes() const {
  const int64_t block = ggml_block_elements(type);
  TESSERA_ASSERT(row_elements() % block == 0, "rows of whole blocks of " + name);
  return row_elements() / block * ggml_block_bytes(type);
}

struct GgufWriter::State {
  AtomicFile file;
  std::vector<GgufTensorSpec> tensors;
  std::vector<int64_t> begins;  // byte offsets in the file
  int64_t num_bytes = 0;
};

GgufWriter::GgufWriter(const std::string& path, const GgufMetadata& metadata,
                       const std::vector<GgufTensorSpec>& tensors)
    : state_(new State{AtomicFile(cleared(path)), tensors, {}, 0}) {
  std::string header = "GGUF";
  put(header, kVersion);
  put(header, static_cast<uint64_t>(tensors.size()));
  put(header, static_cast<uint64_t>(metadata.count()));
  header += metadata.bytes();
  int64_t data = 0;
  for (const GgufTensorSpec& tensor : tensors) {
    put_text(header, tensor.name);
    put(header, static_cast<uint32_t>(tensor.shape.size()));
    for (auto dim = tensor.shape.rbegin(); dim != tensor.shape.rend(); ++dim) put(header, *dim);
    put(header, static_cast<uint32_t>(tensor.type));
    put(header, static_cast<uint64_t>(data));
    state_->begins.push_back(data);
    data = aligned(data + tensor.num_bytes());
  }
  const int64_t begin = aligned(static_cast<int64_t>(header.size()));
  for (int64_t& offset : state_->begins) offset += begin;
  state_->num_bytes = begin + data;
  // Bytes that are not written, those between tensors, read as zero.
  state_->file.reserve(state_->num_bytes);
  header.resize(static_cast<size_t>(begin));
  state_->file.write_at(0, header.data(), begin);
}

GgufWriter::~GgufWriter() = default;

void GgufWriter::write_rows(size_t tensor, int64_t first_row, int64_t num_rows, const void* blocks) {
  const GgufTensorSpec& spec = state_->tensors.at(tensor);
  TESSERA_ASSERT(first_row >= 0 && num_rows >= 0 && num_rows <= spec.num_rows() - first_row,
                 "rows outside of " + spec.name);
  const int64_t bytes = spec.row_bytes();
  state_->file.write_at(state_->begins[tensor] + first_row * bytes, blocks, num_rows * bytes);
}

const std::string& GgufWriter::temporary_path() const { return state_->file.temporary_path(); }
void GgufWriter::commit() { state_->file.commit(); }
int64_t GgufWriter::num_bytes() const { return state_->num_bytes; }

}  // namespace tessera::io
