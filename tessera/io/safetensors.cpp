#include "tessera/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tessera/core/strings.h"
#include "tessera/io/safetensors_header.h"

namespace tessera::io {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor files are little-endian");

// Returns the hint for a file of another format that people hand over for a safetensors file, or "".
std::string_view other_format(std::string_view start) {
  if (start.starts_with("PK\x03\x04") || start.starts_with("\x80\x02")) {
    return "this looks like a PyTorch pickle: pickle is not supported, convert to safetensors";
  }
  if (start.starts_with("version "))
    return "this looks like a Git LFS pointer: fetch the file with 'git lfs pull'";
  if (start.starts_with("GGUF")) return "this is a GGUF file: convert it with 'tessera convert'";
  return "";
}

Error length_error(const std::string& path, std::string_view start, std::string what) {
  Error error(ErrorKind::Model, "SAFETENSORS-LENGTH", std::move(what));
  error.in(path + ": byte 0");
  if (const std::string_view hint = other_format(start); !hint.empty()) error.hint(hint);
  return error;
}

}  // namespace

int64_t TensorInfo::numel() const {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return count;
}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile result;
  result.file_ = File::open(path);
  const int64_t file_size = result.file_.size();
  char start[8];
  if (file_size < static_cast<int64_t>(sizeof start)) {
    throw length_error(path, "", "too small to be a safetensors file")
        .got(std::to_string(file_size) + " bytes")
        .need("at least 8");
  }
  result.file_.read_at(0, start, sizeof start);
  uint64_t length = 0;
  std::memcpy(&length, start, sizeof length);
  const std::string_view head(start, sizeof start);
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeader)) {
    throw length_error(path, head, "the header is too long")
        .got(std::to_string(length) + " bytes")
        .need("at most " + std::to_string(kMaxSafetensorsHeader));
  }
  if (static_cast<int64_t>(length) > file_size - 8) {
    throw length_error(path, head, "the header is longer than the file: the file is truncated or wrong")
        .got(std::to_string(length) + " bytes")
        .need("at most " + std::to_string(file_size - 8));
  }
  std::string text(length, '\0');
  result.file_.read_at(8, text.data(), static_cast<int64_t>(length));
  SafetensorsHeader header = parse_safetensors_header(text, file_size, path);
  result.tensors_ = std::move(header.tensors);
  result.metadata_ = std::move(header.metadata);
  result.index_.reserve(result.tensors_.size());
  for (size_t i = 0; i < result.tensors_.size(); ++i) result.index_.emplace(result.tensors_[i].name, i);
  return result;
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void SafetensorsFile::read(const TensorInfo& tensor, int64_t byte_offset, int64_t num_bytes,
                           void* destination) const {
  TESSERA_ASSERT(byte_offset >= 0 && num_bytes >= 0 && byte_offset <= tensor.num_bytes() &&
                     num_bytes <= tensor.num_bytes() - byte_offset,
                 "read outside tensor '" + tensor.name + "' of " + path());
  file_.read_at(tensor.begin + byte_offset, destination, num_bytes);
}

}  // namespace tessera::io
