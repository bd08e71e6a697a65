// Writing GGUF files (version 3).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/io/ggml_quants.h"

namespace tessera::io {

// The metadata of a file, in the order in which they are added.
class GgufMetadata {
 public:
  void add(std::string_view key, uint32_t value);
  void add(std::string_view key, float value);
  void add(std::string_view key, bool value);
  void add(std::string_view key, std::string_view value);
  void add(std::string_view key, const char* value) { add(key, std::string_view(value)); }
  void add(std::string_view key, std::span<const std::string> values);
  void add(std::string_view key, std::span<const int32_t> values);
  void add(std::string_view key, std::span<const float> values);

  int64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
  int64_t count_ = 0;
};

// A tensor to be written. Its rows hold whole blocks of the type.
struct GgufTensorSpec {
  std::string name;
  GgmlType type = GgmlType::F32;
  std::vector<int64_t> shape;  // slowest dim first

  int64_t row_elements() const { return shape.empty() ? 1 : shape.back(); }
  int64_t num_rows() const;
  int64_t row_bytes() const;
  int64_t num_bytes() const { return num_rows() * row_bytes(); }
};

// Writes one file. All tensors are declared first, then their bytes arrive in any order. The file appears at
// commit(); a writer that is destroyed before leaves nothing.
class GgufWriter {
 public:
  // Makes the temporary file and reserves the space of the whole, after removing the temporaries that killed
  // processes have left of this file. Throws Storage when the disk is full or the folder cannot be written.
  GgufWriter(const std::string& path, const GgufMetadata& metadata,
             const std::vector<GgufTensorSpec>& tensors);
  ~GgufWriter();
  GgufWriter(const GgufWriter&) = delete;
  GgufWriter& operator=(const GgufWriter&) = delete;

  // Writes rows [first_row, first_row + num_rows) of the tensor with this index, as blocks of its type. A
  // range outside the tensor is an Internal error.
  void write_rows(size_t tensor, int64_t first_row, int64_t num_rows, const void* blocks);
  // Path of the file until commit().
  const std::string& temporary_path() const;
  // Puts the file in its place; throws Storage when the disk fails.
  void commit();

  int64_t num_bytes() const;  // of the whole file

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::io
