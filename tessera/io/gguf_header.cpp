#include "tessera/io/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_set>

#include "tessera/core/strings.h"

namespace tessera::io {
namespace {

static_assert(std::endian::native == std::endian::little, "model files are little-endian");

constexpr int64_t kBuffer = 64 << 10;
constexpr int64_t kMaxString = int64_t{1} << 30;  // bytes, as in ggml's reader
constexpr int64_t kMaxArray = int64_t{1} << 30;   // elements
constexpr int64_t kMaxKey = 65535;
constexpr int64_t kMaxTensorName = 63;
constexpr uint32_t kMaxDims = 4;
// The fewest bytes that an entry can take. An entry of the metadata has a key (length and one letter), a type
// and at least one byte of value; a tensor's has a name (length), the number of dims, a type and an offset.
constexpr int64_t kMinKeyValue = 8 + 1 + 4 + 1;
constexpr int64_t kMinTensor = 8 + 4 + 4 + 8;
constexpr std::string_view kAlignmentKey = "general.alignment";

class Reader {
 public:
  explicit Reader(const File& file) : file_(file) {}

  int64_t offset() const { return offset_; }
  int64_t remaining() const { return file_.size() - offset_; }

  // Names what is being read, for messages: "key 'x'".
  void set_subject(std::string subject) { subject_ = std::move(subject); }

  Error error(std::string_view name, std::string what) const {
    Error result(ErrorKind::Model, name, std::move(what));
    result.in(file_.path() + ": byte " + std::to_string(offset_) + (subject_.empty() ? "" : ": " + subject_));
    return result;
  }

  void need(int64_t num_bytes, std::string_view what) const {
    if (num_bytes <= remaining()) return;
    throw error("GGUF-TRUNCATED", "the file ends inside " + std::string(what))
        .got(std::to_string(remaining()) + " bytes left")
        .need(std::to_string(num_bytes));
  }

  void read(char* destination, int64_t num_bytes) {
    while (num_bytes > 0) {
      if (offset_ < buffer_begin_ || offset_ >= buffer_begin_ + static_cast<int64_t>(buffer_.size())) fill();
      const int64_t from = offset_ - buffer_begin_;
      const int64_t count = std::min(num_bytes, static_cast<int64_t>(buffer_.size()) - from);
      std::memcpy(destination, buffer_.data() + from, static_cast<size_t>(count));
      destination += count;
      offset_ += count;
      num_bytes -= count;
    }
  }

  template <typename T>
  T number(std::string_view what) {
    need(sizeof(T), what);
    T value;
    read(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }

  std::string bytes(int64_t num_bytes, std::string_view what) {
    need(num_bytes, what);
    std::string result(static_cast<size_t>(num_bytes), '\0');
    read(result.data(), num_bytes);
    return result;
  }

  std::string string(int64_t max_bytes, std::string_view what) {
    const auto length = number<uint64_t>(what);
    if (length > static_cast<uint64_t>(max_bytes)) {
      throw error("GGUF-LENGTH", std::string(what) + " is too long")
          .got(std::to_string(length) + " bytes")
          .need("at most " + std::to_string(max_bytes));
    }
    return bytes(static_cast<int64_t>(length), what);
  }

 private:
  void fill() {
    buffer_begin_ = offset_;
    buffer_.resize(static_cast<size_t>(std::min(kBuffer, remaining())));
    file_.read_at(offset_, buffer_.data(), static_cast<int64_t>(buffer_.size()));
  }

  const File& file_;
  int64_t offset_ = 0, buffer_begin_ = 0;
  std::string buffer_;
  std::string subject_;
};

// Reads a count of entries, and refuses one for which the rest of the file is too short: each entry takes at
// least `min_bytes` bytes.
int64_t read_count(Reader& reader, std::string_view what, int64_t min_bytes) {
  const auto count = reader.number<int64_t>(what);
  if (count < 0 || count > reader.remaining() / min_bytes) {
    throw reader.error("GGUF-COUNT", "impossible " + std::string(what))
        .got(std::to_string(count))
        .need("at most " + std::to_string(reader.remaining() / min_bytes));
  }
  return count;
}

GgufType read_type(Reader& reader) {
  const auto type = reader.number<uint32_t>("a value's type");
  if (type >= kNumGgufTypes)
    throw reader.error("GGUF-TYPE", "unknown value type").got(std::to_string(type)).need("0 to 12");
  return static_cast<GgufType>(type);
}

void check_bools(const Reader& reader, const std::string& bytes) {
  for (const char value : bytes) {
    if (value == 0 || value == 1) continue;
    throw reader.error("GGUF-BOOL", "a bool must be 0 or 1")
        .got(std::to_string(static_cast<unsigned char>(value)));
  }
}

GgufValue read_array(Reader& reader) {
  const GgufType type = read_type(reader);
  if (type == GgufType::Array) throw reader.error("GGUF-TYPE", "arrays of arrays are not supported");
  const auto count = reader.number<uint64_t>("an array's length");
  const int64_t element = type == GgufType::String ? 8 : gguf_type_size(type);
  if (count > static_cast<uint64_t>(std::min(kMaxArray, reader.remaining() / element))) {
    throw reader.error("GGUF-LENGTH", "the array is longer than the rest of the file or than is allowed")
        .got(std::to_string(count) + " elements")
        .need("at most " + std::to_string(std::min(kMaxArray, reader.remaining() / element)));
  }
  const auto num_elements = static_cast<int64_t>(count);
  if (type == GgufType::String) {
    std::vector<std::string> strings;
    for (int64_t i = 0; i < num_elements; ++i) strings.push_back(reader.string(kMaxString, "a string"));
    return strings;
  }
  GgufArray array{static_cast<uint32_t>(type), num_elements,
                  reader.bytes(num_elements * element, "an array")};
  if (type == GgufType::Bool) check_bools(reader, array.bytes);
  return array;
}

GgufValue read_value(Reader& reader, GgufType type) {
  if (type == GgufType::String) return reader.string(kMaxString, "a string");
  if (type == GgufType::Array) return read_array(reader);
  const std::string bytes = reader.bytes(gguf_type_size(type), "a value");
  if (type == GgufType::Bool) check_bools(reader, bytes);
  return decode_gguf_scalar(type, bytes.data());
}

// The format asks for lower_snake_case joined by dots; real files also use '-' (in names of architectures)
// and capitals, so all of printable ASCII passes.
std::string read_key(Reader& reader) {
  reader.set_subject("");
  std::string key = reader.string(kMaxKey, "a key");
  if (key.empty()) throw reader.error("GGUF-KEY", "empty key");
  if (!std::all_of(key.begin(), key.end(), [](char c) { return c > 0x20 && c < 0x7f; })) {
    throw reader.error("GGUF-KEY", "a key may hold printable ASCII only").got("'" + key.substr(0, 80) + "'");
  }
  reader.set_subject("key '" + key.substr(0, 200) + "'");
  return key;
}

uint32_t start_and_version(Reader& reader) {
  const std::string magic = reader.bytes(4, "the magic number");
  if (magic != "GGUF")
    throw reader.error("GGUF-MAGIC", "not a GGUF file").got("'" + magic + "'").need("'GGUF'");
  const auto version = reader.number<uint32_t>("the version");
  if (version != 0 && (version & 0xffff) == 0) {
    throw reader.error("GGUF-VERSION", "the file is big-endian, which is not supported");
  }
  if (version != 2 && version != 3) {
    throw reader.error("GGUF-VERSION", "unsupported GGUF version")
        .got(std::to_string(version))
        .need("2 or 3");
  }
  return version;
}

int64_t alignment_of(const Reader& reader, GgufType type, const GgufValue& value) {
  if (type != GgufType::U32) throw reader.error("GGUF-ALIGNMENT", "the alignment must be a u32");
  const uint64_t alignment = std::get<uint64_t>(value);
  if (alignment < 8 || !std::has_single_bit(alignment)) {
    throw reader.error("GGUF-ALIGNMENT", "bad alignment")
        .got(std::to_string(alignment))
        .need("a power of 2 from 8 on");
  }
  return static_cast<int64_t>(alignment);
}

// Reads a tensor's entry of the header, all but `begin` and `end`: the caller finds these from `num_bytes`,
// the size of the tensor's data, and `offset`, where the file says that they begin.
GgufTensor read_tensor(Reader& reader, int64_t* num_bytes, uint64_t* offset) {
  GgufTensor tensor;
  reader.set_subject("");
  tensor.name = reader.string(kMaxTensorName, "a tensor's name");
  reader.set_subject("tensor '" + tensor.name + "'");
  const auto num_dims = reader.number<uint32_t>("the number of dims");
  if (num_dims > kMaxDims)
    throw reader.error("GGUF-SHAPE", "too many dims").got(std::to_string(num_dims)).need("at most 4");
  int64_t count = 1;  // elements, with dims of 0 counted as 1: no order of multiplying may overflow
  bool is_empty = false;
  for (uint32_t i = 0; i < num_dims; ++i) {
    const auto dim = reader.number<int64_t>("a dim");
    if (dim < 0) throw reader.error("GGUF-SHAPE", "negative dim").got(std::to_string(dim));
    is_empty = is_empty || dim == 0;
    if (__builtin_mul_overflow(count, std::max<int64_t>(dim, 1), &count) || count == INT64_MAX) {
      throw reader.error("GGUF-SHAPE", "the number of elements overflows");
    }
    tensor.shape.push_back(dim);
  }
  if (is_empty) count = 0;
  const auto id = reader.number<uint32_t>("a tensor's type");
  const std::optional<GgmlType> type = parse_ggml_type(id);
  if (!type) {
    throw reader.error("GGUF-TENSOR-TYPE", "tensors of this type cannot be read")
        .got(ggml_type_name(id))
        .need("F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS, MXFP4 or NVFP4");
  }
  tensor.type = *type;
  const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.front();
  const int64_t block = ggml_block_elements(*type);
  if (row % block != 0) {
    throw reader.error("GGUF-SHAPE", "a row is not a whole number of blocks")
        .got(std::to_string(row) + " elements")
        .need("a multiple of " + std::to_string(block) + " for " + tensor.type_name());
  }
  if (__builtin_mul_overflow(count / block, ggml_block_bytes(*type), num_bytes)) {
    throw reader.error("GGUF-SHAPE", "the tensor's size overflows");
  }
  *offset = reader.number<uint64_t>("a tensor's offset");
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  return tensor;
}

}  // namespace

int64_t gguf_type_size(GgufType type) {
  switch (type) {
    case GgufType::U8:
    case GgufType::I8:
    case GgufType::Bool: return 1;
    case GgufType::U16:
    case GgufType::I16: return 2;
    case GgufType::U32:
    case GgufType::I32:
    case GgufType::F32: return 4;
    case GgufType::U64:
    case GgufType::I64:
    case GgufType::F64: return 8;
    case GgufType::String:
    case GgufType::Array: return 0;
  }
  return 0;
}

GgufValue decode_gguf_scalar(GgufType type, const char* bytes) {
  const auto load = [bytes]<typename T>(T value) {
    std::memcpy(&value, bytes, sizeof value);
    return value;
  };
  switch (type) {
    case GgufType::U8: return uint64_t{load(uint8_t{})};
    case GgufType::I8: return int64_t{load(int8_t{})};
    case GgufType::U16: return uint64_t{load(uint16_t{})};
    case GgufType::I16: return int64_t{load(int16_t{})};
    case GgufType::U32: return uint64_t{load(uint32_t{})};
    case GgufType::I32: return int64_t{load(int32_t{})};
    case GgufType::U64: return load(uint64_t{});
    case GgufType::I64: return load(int64_t{});
    case GgufType::F32: return double{load(float{})};
    case GgufType::F64: return load(double{});
    case GgufType::Bool: return *bytes != 0;
    case GgufType::String:
    case GgufType::Array: break;
  }
  throw_internal(__FILE__, __LINE__, "scalar type", "a string or array is no scalar");
}

GgufHeader read_gguf_header(const File& file) {
  Reader reader(file);
  GgufHeader header;
  header.version = start_and_version(reader);
  const int64_t num_tensors = read_count(reader, "number of tensors", kMinTensor);
  const int64_t num_keys = read_count(reader, "number of keys", kMinKeyValue);

  int64_t alignment = 32;
  for (int64_t i = 0; i < num_keys; ++i) {
    std::string key = read_key(reader);
    if (header.metadata.contains(key)) throw reader.error("GGUF-DUPLICATE", "the key appears twice");
    const GgufType type = read_type(reader);
    GgufValue value = read_value(reader, type);
    if (key == kAlignmentKey) alignment = alignment_of(reader, type, value);
    header.metadata.emplace(std::move(key), std::move(value));
  }

  std::unordered_set<std::string> names;
  int64_t expected = 0;
  for (int64_t i = 0; i < num_tensors; ++i) {
    int64_t num_bytes = 0;
    uint64_t offset = 0;
    GgufTensor tensor = read_tensor(reader, &num_bytes, &offset);
    if (!names.insert(tensor.name).second) throw reader.error("GGUF-DUPLICATE", "the tensor appears twice");
    if (offset != static_cast<uint64_t>(expected)) {
      throw reader.error("GGUF-OFFSET", "the tensor's data does not follow the tensor before it")
          .got("offset " + std::to_string(offset))
          .need(std::to_string(expected));
    }
    tensor.begin = expected;
    if (__builtin_add_overflow(expected, num_bytes, &tensor.end) ||
        __builtin_add_overflow(tensor.end, alignment - 1, &expected)) {
      throw reader.error("GGUF-SHAPE", "the tensors' sizes overflow");
    }
    expected &= ~(alignment - 1);
    header.tensors.push_back(std::move(tensor));
  }

  const int64_t data_begin = (reader.offset() + alignment - 1) & ~(alignment - 1);
  for (GgufTensor& tensor : header.tensors) {
    if (tensor.end > file.size() - data_begin) {
      throw Error(ErrorKind::Model, "GGUF-TRUNCATED", "the tensor's data lies beyond the end of the file")
          .in(file.path() + ": tensor '" + tensor.name + "'")
          .got("a file of " + std::to_string(file.size()) + " bytes")
          .need("the data from byte " + std::to_string(data_begin) + " on and " + std::to_string(tensor.end) +
                " bytes of it");
    }
    tensor.begin += data_begin;
    tensor.end += data_begin;
  }
  return header;
}

}  // namespace tessera::io
