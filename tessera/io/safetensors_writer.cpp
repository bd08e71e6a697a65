#include <algorithm>
#include <mutex>

#include <nlohmann/json.hpp>

#include "tessera/core/utf8.h"
#include "tessera/io/byte_ranges.h"
#include "tessera/io/safetensors.h"
#include "tessera/io/safetensors_header.h"

namespace tessera::io {
namespace {

Error spec_error(const std::string& path, const std::string& name, std::string what) {
  return Error(ErrorKind::Model, "SAFETENSORS-WRITE", std::move(what)).in(path + ": tensor '" + name + "'");
}

void check_text(const std::string& path, const std::string& name, const std::string& text) {
  if (find_invalid_utf8(text) >= 0)
    throw spec_error(path, name, "a name or metadata text is not valid UTF-8");
}

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

// Returns the tensors in the order of their bytes, with offsets counted from the first byte of the data.
std::vector<TensorInfo> lay_out(const std::string& path, const std::vector<TensorSpec>& specs) {
  if (static_cast<int64_t>(specs.size()) > kMaxSafetensorsTensors) {
    throw Error(ErrorKind::Model, "SAFETENSORS-WRITE", "too many tensors for one file").in(path);
  }
  std::vector<TensorInfo> tensors;
  tensors.reserve(specs.size());
  for (const TensorSpec& spec : specs) {
    check_text(path, spec.name, spec.name);
    if (spec.name == "__metadata__") throw spec_error(path, spec.name, "the format reserves this name");
    if (static_cast<int64_t>(spec.name.size()) > kMaxSafetensorsName)
      throw spec_error(path, spec.name, "the name is too long");
    if (static_cast<int64_t>(spec.shape.size()) > kMaxSafetensorsRank)
      throw spec_error(path, spec.name, "too many dims");
    tensors.push_back({spec.name, spec.dtype, spec.shape, 0, spec.num_bytes()});
  }
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
  int64_t offset = 0;
  for (TensorInfo& tensor : tensors) {
    tensor.begin = offset;
    if (__builtin_add_overflow(offset, tensor.end, &offset) ||
        offset > INT64_MAX - kMaxSafetensorsHeader - 8) {
      throw spec_error(path, tensor.name, "the file would be too large");
    }
    tensor.end = offset;
  }
  return tensors;
}

std::string header_text(const std::vector<TensorInfo>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (text.back() != '{') text += ',';
      text += quoted(key) + ':' + quoted(value);
    }
    text += '}';
  }
  for (const TensorInfo& tensor : tensors) {
    if (text.size() > 1) text += ',';
    text += quoted(tensor.name) + ":{\"dtype\":\"" + std::string(dtype_name(tensor.dtype)) + "\",\"shape\":[";
    for (size_t i = 0; i < tensor.shape.size(); ++i)
      text += (i > 0 ? "," : "") + std::to_string(tensor.shape[i]);
    text += "],\"data_offsets\":[" + std::to_string(tensor.begin) + ',' + std::to_string(tensor.end) + "]}";
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

int64_t TensorSpec::num_bytes() const {
  int64_t bytes = 0;
  if (!checked_tensor_bytes(dtype, shape, &bytes)) {
    throw Error(ErrorKind::Model, "TENSOR-SIZE", "the tensor's size overflows or a dim is negative")
        .in("tensor '" + name + "'");
  }
  return bytes;
}

struct SafetensorsWriter::State {
  explicit State(const std::string& path) : file(path) {}

  AtomicFile file;
  std::vector<TensorInfo> tensors;  // with absolute byte offsets in the file
  std::unordered_map<std::string_view, size_t> index;
  std::mutex mutex;  // guards `written`
  std::vector<ByteRanges> written;
};

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<TensorSpec>& tensors,
                                     const std::map<std::string, std::string>& metadata) {
  std::vector<TensorInfo> placed = lay_out(path, tensors);
  for (const auto& [key, value] : metadata) {
    check_text(path, "__metadata__", key);
    check_text(path, "__metadata__", value);
  }
  const std::string header = header_text(placed, metadata);
  const auto length = static_cast<uint64_t>(header.size());
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeader)) {
    throw Error(ErrorKind::Model, "SAFETENSORS-WRITE", "the header would be too long").in(path);
  }
  const int64_t data_begin = 8 + static_cast<int64_t>(length);
  const int64_t file_size = data_begin + (placed.empty() ? 0 : placed.back().end);

  state_ = std::make_unique<State>(path);
  state_->tensors = std::move(placed);
  state_->written.resize(state_->tensors.size());
  for (size_t i = 0; i < state_->tensors.size(); ++i) {
    TensorInfo& tensor = state_->tensors[i];
    tensor.begin += data_begin;
    tensor.end += data_begin;
    if (!state_->index.emplace(tensor.name, i).second)
      throw spec_error(path, tensor.name, "the tensor was declared twice");
  }
  state_->file.reserve(file_size);
  state_->file.write_at(0, &length, 8);
  state_->file.write_at(8, header.data(), static_cast<int64_t>(header.size()));
}

SafetensorsWriter::~SafetensorsWriter() = default;
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&&) noexcept = default;

void SafetensorsWriter::write(std::string_view name, int64_t byte_offset, const void* data,
                              int64_t num_bytes) {
  const auto found = state_->index.find(name);
  TESSERA_ASSERT(found != state_->index.end(), "write of the undeclared tensor '" + std::string(name) + "'");
  const TensorInfo& tensor = state_->tensors[found->second];
  TESSERA_ASSERT(byte_offset >= 0 && num_bytes >= 0 && byte_offset <= tensor.num_bytes() &&
                     num_bytes <= tensor.num_bytes() - byte_offset,
                 "write outside tensor '" + tensor.name + "'");
  state_->file.write_at(tensor.begin + byte_offset, data, num_bytes);
  const std::lock_guard lock(state_->mutex);
  state_->written[found->second].add(byte_offset, byte_offset + num_bytes);
}

void SafetensorsWriter::check_complete() const {
  const std::lock_guard lock(state_->mutex);
  for (size_t i = 0; i < state_->tensors.size(); ++i) {
    const TensorInfo& tensor = state_->tensors[i];
    const int64_t missing = state_->written[i].first_missing(tensor.num_bytes());
    TESSERA_ASSERT(missing < 0, "tensor '" + tensor.name + "' of " + state_->file.path() +
                                    " was not written from byte " + std::to_string(missing) + " on");
  }
}

void SafetensorsWriter::commit() {
  check_complete();
  state_->file.commit();
}

}  // namespace tessera::io
