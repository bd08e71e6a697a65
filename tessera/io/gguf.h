// Reading GGUF files (versions 2 and 3, little-endian): typed metadata and tensors as float32. A model may
// stand in several files, which are read as one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "tessera/io/file.h"
#include "tessera/io/ggml_quants.h"

namespace tessera::io {

// An array of numbers or bools as it stands in the file: `element_type` is the GGUF value type.
struct GgufArray {
  uint32_t element_type = 0;
  int64_t num_elements = 0;
  std::string bytes;
};
// A value of the metadata. Integers of any width are widened to 64 bits, floats to double.
using GgufValue =
    std::variant<uint64_t, int64_t, double, bool, std::string, GgufArray, std::vector<std::string>>;

struct GgufTensor {
  std::string name;
  GgmlType type = GgmlType::F32;
  std::vector<int64_t> shape;  // slowest dim first, as PyTorch prints it: the reverse of the file's order
  int64_t begin = 0, end = 0;  // absolute byte offsets in the file
  size_t part = 0;             // index of the file, if the model is split

  std::string type_name() const { return ggml_type_name(static_cast<uint32_t>(type)); }
  int64_t numel() const;
  // A row holds the elements of the innermost dim: num_rows() * row_elements() == numel().
  int64_t row_elements() const { return shape.empty() ? 1 : shape.back(); }
  int64_t num_rows() const;
};

class GgufFile {
 public:
  // Reads and checks the header and the layout of the data. If the file is one of several
  // (io/gguf_parts.h), all of them are opened, whichever of them `path` names. Throws Model for malformed
  // contents, naming the byte offset, key or tensor, for a tensor type that cannot be dequantised, and for a
  // part that is missing; Storage on I/O failure.
  static GgufFile open(const std::string& path);

  uint32_t version() const { return version_; }
  // Path of the file; of the first of several.
  const std::string& path() const { return files_.front().path(); }
  // Returns the paths of all parts of the model.
  std::vector<std::string> paths() const;
  // Names a tensor and the file that holds it, for errors.
  std::string place_of(const GgufTensor& tensor) const {
    return files_[tensor.part].path() + ": tensor '" + tensor.name + "'";
  }

  // The metadata, of the first of several files. The getters throw Model, naming the key, when it is missing
  // or of another type.
  bool contains(std::string_view key) const { return metadata_.find(key) != metadata_.end(); }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  const std::string& get_string(std::string_view key) const;
  uint64_t get_uint(std::string_view key) const;  // any integer type, value >= 0
  int64_t get_int(std::string_view key) const;    // any integer type, value < 2^63
  double get_float(std::string_view key) const;   // float32 or float64
  bool get_bool(std::string_view key) const;
  const std::vector<std::string>& get_strings(std::string_view key) const;
  std::vector<int64_t> get_ints(std::string_view key) const;  // an array of any integer type
  std::vector<double> get_floats(std::string_view key) const;
  std::vector<bool> get_bools(std::string_view key) const;
  // These getters return `fallback` for a missing key; a value of another type is still an error.
  std::string get_string(std::string_view key, std::string_view fallback) const;
  uint64_t get_uint(std::string_view key, uint64_t fallback) const;
  double get_float(std::string_view key, double fallback) const;
  bool get_bool(std::string_view key, bool fallback) const;

  // All tensors, in the order of the files.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  // Returns the tensor of this name, or null when there is none.
  const GgufTensor* find(std::string_view name) const;

  // Returns the number of bytes of a row, which holds whole blocks.
  static int64_t row_bytes(const GgufTensor& tensor);
  // Reads rows [first_row, first_row + num_rows) as they are stored to destination[num_rows * row_bytes()].
  // Rows outside the tensor are an Internal error. Safe from several threads.
  void read_blocks(const GgufTensor& tensor, int64_t first_row, int64_t num_rows, void* destination) const;
  // Dequantises rows [first_row, first_row + num_rows) to destination[num_rows * row_elements()], through a
  // buffer of at most 1 MiB. The rules of read_blocks() for rows and threads hold here too.
  void read_f32(const GgufTensor& tensor, int64_t first_row, int64_t num_rows, float* destination) const;

 private:
  static GgufFile open_one(const std::string& path);
  static GgufFile open_parts(const GgufFile& named);
  void add_part(GgufFile part);
  const GgufValue& value(std::string_view key) const;
  void check_rows(const GgufTensor& tensor, int64_t first_row, int64_t num_rows) const;

  std::vector<File> files_;  // the parts in their order
  uint32_t version_ = 0;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> index_;
};

}  // namespace tessera::io
