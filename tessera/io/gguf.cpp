#include "tessera/io/gguf.h"

#include <algorithm>

#include "tessera/core/strings.h"
#include "tessera/io/gguf_header.h"
#include "tessera/io/gguf_parts.h"

namespace tessera::io {
namespace {

constexpr int64_t kReadBuffer = 1 << 20;  // bytes

std::string_view kind_of(const GgufValue& value) {
  static constexpr std::string_view kKinds[] = {
      "an unsigned integer",          "a signed integer",   "a float", "a bool", "a string",
      "an array of numbers or bools", "an array of strings"};
  return kKinds[value.index()];
}

Error type_error(const GgufFile& file, std::string_view key, std::string_view got, std::string_view need) {
  Error error(ErrorKind::Model, "GGUF-VALUE", "the value is not of the expected kind");
  error.in(file.path() + ": key '" + std::string(key) + "'").got(got).need(need);
  return error;
}

// Converts the numbers of an array to T and appends them to `out`. Returns false when the elements are of
// another kind or do not fit.
template <typename T, typename Convert>
bool decode_array(const GgufArray& array, Convert convert, std::vector<T>* out) {
  const auto type = static_cast<GgufType>(array.element_type);
  const int64_t size = gguf_type_size(type);
  out->reserve(static_cast<size_t>(array.num_elements));
  for (int64_t i = 0; i < array.num_elements; ++i) {
    T value{};
    if (!convert(decode_gguf_scalar(type, array.bytes.data() + i * size), &value)) return false;
    out->push_back(value);
  }
  return true;
}

bool to_int(const GgufValue& value, int64_t* out) {
  if (const auto* number = std::get_if<uint64_t>(&value)) {
    *out = static_cast<int64_t>(*number);
    return *number <= static_cast<uint64_t>(INT64_MAX);
  }
  const auto* number = std::get_if<int64_t>(&value);
  if (number != nullptr) *out = *number;
  return number != nullptr;
}

bool to_double(const GgufValue& value, double* out) {
  const auto* number = std::get_if<double>(&value);
  if (number != nullptr) *out = *number;
  return number != nullptr;
}

}  // namespace

int64_t GgufTensor::numel() const {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return count;
}

int64_t GgufTensor::num_rows() const {
  int64_t count = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) count *= shape[i];
  return count;
}

GgufFile GgufFile::open(const std::string& path) {
  GgufFile file = open_one(path);
  if (file.get_uint("split.count", 1) > 1) file = open_parts(file);
  for (size_t i = 0; i < file.tensors_.size(); ++i) {
    const GgufTensor& tensor = file.tensors_[i];
    const auto [found, is_new] = file.index_.emplace(tensor.name, i);
    if (!is_new) {
      throw Error(ErrorKind::Model, "TENSOR-TWICE", "the tensor is in two parts")
          .in(file.place_of(tensor))
          .got("also in " + file.files_[file.tensors_[found->second].part].path());
    }
  }
  return file;
}

// Opens a file without those that belong to it, and without the index of its tensors.
GgufFile GgufFile::open_one(const std::string& path) {
  GgufFile file;
  file.files_.push_back(File::open(path));
  GgufHeader header = read_gguf_header(file.files_.front());
  file.version_ = header.version;
  file.metadata_ = std::move(header.metadata);
  file.tensors_ = std::move(header.tensors);
  return file;
}

// Opens all parts of the model that the file `named` is a part of. The first part has the metadata.
GgufFile GgufFile::open_parts(const GgufFile& named) {
  const GgufPart part{named.get_uint("split.no"), named.get_uint("split.count")};
  const std::vector<std::string> paths = gguf_part_paths(named.path(), part);
  GgufFile whole = open_one(paths.front());
  for (uint64_t i = 0; i < paths.size(); ++i) {
    GgufFile next = i == 0 ? GgufFile() : open_one(paths[i]);
    const GgufFile& file = i == 0 ? whole : next;
    const GgufPart got{file.get_uint("split.no"), file.get_uint("split.count")};
    if (got.number != i || got.count != part.count) {
      throw Error(ErrorKind::Model, "GGUF-PARTS", "the file is not the part that its name says")
          .in(file.path())
          .got(got.text())
          .need(GgufPart{i, part.count}.text())
          .hint("the folder contains files of several models, or some files have been renamed");
    }
    if (i > 0) whole.add_part(std::move(next));
  }
  const uint64_t total = whole.get_uint("split.tensors.count", whole.tensors_.size());
  if (total != whole.tensors_.size()) {
    throw Error(ErrorKind::Model, "GGUF-PARTS", "the parts do not contain all tensors of the model")
        .in(whole.path() + ": key 'split.tensors.count'")
        .got(std::to_string(whole.tensors_.size()) + " tensors in all parts")
        .need(std::to_string(total));
  }
  return whole;
}

void GgufFile::add_part(GgufFile part) {
  for (GgufTensor& tensor : part.tensors_) {
    tensor.part = files_.size();
    tensors_.push_back(std::move(tensor));
  }
  files_.push_back(std::move(part.files_.front()));
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const GgufValue& GgufFile::value(std::string_view key) const {
  const auto found = metadata_.find(key);
  if (found != metadata_.end()) return found->second;
  throw Error(ErrorKind::Model, "GGUF-MISSING-KEY",
              "the file lacks the metadata key '" + std::string(key) + "'")
      .in(path());
}

const std::string& GgufFile::get_string(std::string_view key) const {
  const GgufValue& held = value(key);
  if (const auto* text = std::get_if<std::string>(&held)) return *text;
  throw type_error(*this, key, kind_of(held), "a string");
}

uint64_t GgufFile::get_uint(std::string_view key) const {
  const GgufValue& held = value(key);
  if (const auto* number = std::get_if<uint64_t>(&held)) return *number;
  const auto* number = std::get_if<int64_t>(&held);
  if (number == nullptr) throw type_error(*this, key, kind_of(held), "an integer");
  if (*number < 0) throw type_error(*this, key, std::to_string(*number), "an integer from 0 on");
  return static_cast<uint64_t>(*number);
}

int64_t GgufFile::get_int(std::string_view key) const {
  const GgufValue& held = value(key);
  int64_t number = 0;
  if (!to_int(held, &number)) throw type_error(*this, key, kind_of(held), "an integer of 63 bits");
  return number;
}

double GgufFile::get_float(std::string_view key) const {
  const GgufValue& held = value(key);
  double number = 0;
  if (!to_double(held, &number)) throw type_error(*this, key, kind_of(held), "a float");
  return number;
}

bool GgufFile::get_bool(std::string_view key) const {
  const GgufValue& held = value(key);
  if (const auto* flag = std::get_if<bool>(&held)) return *flag;
  throw type_error(*this, key, kind_of(held), "a bool");
}

const std::vector<std::string>& GgufFile::get_strings(std::string_view key) const {
  const GgufValue& held = value(key);
  if (const auto* strings = std::get_if<std::vector<std::string>>(&held)) return *strings;
  throw type_error(*this, key, kind_of(held), "an array of strings");
}

std::vector<int64_t> GgufFile::get_ints(std::string_view key) const {
  const GgufValue& held = value(key);
  std::vector<int64_t> numbers;
  const auto* array = std::get_if<GgufArray>(&held);
  if (array == nullptr || !decode_array(*array, to_int, &numbers)) {
    throw type_error(*this, key, kind_of(held), "an array of integers of 63 bits");
  }
  return numbers;
}

std::vector<double> GgufFile::get_floats(std::string_view key) const {
  const GgufValue& held = value(key);
  std::vector<double> numbers;
  const auto* array = std::get_if<GgufArray>(&held);
  if (array == nullptr || !decode_array(*array, to_double, &numbers)) {
    throw type_error(*this, key, kind_of(held), "an array of floats");
  }
  return numbers;
}

std::vector<bool> GgufFile::get_bools(std::string_view key) const {
  const GgufValue& held = value(key);
  const auto* array = std::get_if<GgufArray>(&held);
  if (array == nullptr || static_cast<GgufType>(array->element_type) != GgufType::Bool) {
    throw type_error(*this, key, kind_of(held), "an array of bools");
  }
  std::vector<bool> flags;
  for (const char flag : array->bytes) flags.push_back(flag != 0);
  return flags;
}

std::string GgufFile::get_string(std::string_view key, std::string_view fallback) const {
  return contains(key) ? get_string(key) : std::string(fallback);
}
uint64_t GgufFile::get_uint(std::string_view key, uint64_t fallback) const {
  return contains(key) ? get_uint(key) : fallback;
}
double GgufFile::get_float(std::string_view key, double fallback) const {
  return contains(key) ? get_float(key) : fallback;
}
bool GgufFile::get_bool(std::string_view key, bool fallback) const {
  return contains(key) ? get_bool(key) : fallback;
}

int64_t GgufFile::row_bytes(const GgufTensor& tensor) {
  return tensor.row_elements() / ggml_block_elements(tensor.type) * ggml_block_bytes(tensor.type);
}

void GgufFile::check_rows(const GgufTensor& tensor, int64_t first_row, int64_t num_rows) const {
  TESSERA_ASSERT(first_row >= 0 && num_rows >= 0 && first_row <= tensor.num_rows() &&
                     num_rows <= tensor.num_rows() - first_row,
                 "read of rows outside " + place_of(tensor));
}

void GgufFile::read_blocks(const GgufTensor& tensor, int64_t first_row, int64_t num_rows,
                           void* destination) const {
  check_rows(tensor, first_row, num_rows);
  const int64_t bytes = row_bytes(tensor);
  files_[tensor.part].read_at(tensor.begin + first_row * bytes, destination, num_rows * bytes);
}

void GgufFile::read_f32(const GgufTensor& tensor, int64_t first_row, int64_t num_rows,
                        float* destination) const {
  if (tensor.type == GgmlType::F32) return read_blocks(tensor, first_row, num_rows, destination);
  check_rows(tensor, first_row, num_rows);
  const int64_t block_elements = ggml_block_elements(tensor.type),
                block_bytes = ggml_block_bytes(tensor.type);
  int64_t offset = tensor.begin + first_row * row_bytes(tensor);
  int64_t num_blocks = num_rows * (tensor.row_elements() / block_elements);
  const int64_t max_blocks = kReadBuffer / block_bytes;
  std::vector<char> buffer(static_cast<size_t>(std::min(num_blocks, max_blocks) * block_bytes));
  while (num_blocks > 0) {
    const int64_t count = std::min(num_blocks, max_blocks);
    files_[tensor.part].read_at(offset, buffer.data(), count * block_bytes);
    dequantize_ggml(tensor.type, buffer.data(), count, destination);
    offset += count * block_bytes;
    destination += count * block_elements;
    num_blocks -= count;
  }
}

std::vector<std::string> GgufFile::paths() const {
  std::vector<std::string> paths;
  for (const File& file : files_) paths.push_back(file.path());
  return paths;
}

}  // namespace tessera::io
