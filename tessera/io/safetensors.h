// Reading and writing one safetensors file. The reader accepts exactly the files that the format allows (no
// holes, no overlap, no trailing bytes, no duplicate names) and checks everything before it allocates.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/core/dtype.h"
#include "tessera/io/file.h"

namespace tessera::io {

// Limits for the files that open() accepts and the writer makes.
inline constexpr int64_t kMaxSafetensorsHeader = 100'000'000;  // bytes, as in the reference reader
inline constexpr int64_t kMaxSafetensorsTensors = 1'000'000;
inline constexpr int64_t kMaxSafetensorsName = 1024;  // bytes
inline constexpr int64_t kMaxSafetensorsRank = 16;

// One tensor of a file: row-major, little-endian, no strides. Rank 0 and zero dims are legal.
struct TensorInfo {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // absolute byte offsets in the file

  int64_t numel() const;
  int64_t num_bytes() const { return end - begin; }
};

// A safetensors file opened for ranged reads (pread, never mapped). Safe to read from several threads.
class SafetensorsFile {
 public:
  // Reads and checks the header. Throws Model for a malformed file, naming the byte offset or the tensor;
  // Storage when it cannot be read.
  static SafetensorsFile open(const std::string& path);

  // All tensors, in the order of their bytes in the file.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  // Returns the tensor of this name, or null when there is none. The pointer is valid as long as this object,
  // also after a move.
  const TensorInfo* find(std::string_view name) const;
  // The __metadata__ of the header.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& path() const { return file_.path(); }

  // Copies `num_bytes` bytes from `byte_offset` on, counted from the first byte of the tensor. A range
  // outside the tensor is an Internal error: it is the caller's arithmetic. Throws Storage when reading
  // fails.
  void read(const TensorInfo& tensor, int64_t byte_offset, int64_t num_bytes, void* destination) const;

 private:
  File file_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string_view, size_t> index_;
  std::map<std::string, std::string> metadata_;
};

// A tensor to be written.
struct TensorSpec {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;

  // Returns the size of the tensor's data. Throws Model when it does not fit 63 bits or a dim is negative.
  int64_t num_bytes() const;
};

// Writes one safetensors file. All tensors are declared first, then their bytes arrive in any order and in
// any pieces, from any thread. The file appears at commit(). It has, byte for byte, the layout of the
// reference writer: wider types first, then by name, header padded with spaces to 8.
class SafetensorsWriter {
 public:
  // Makes the temporary file and reserves the space of the whole. Throws Model for a duplicate name or one
  // beyond the caps, Storage when the disk is full or the folder cannot be written.
  SafetensorsWriter(const std::string& path, const std::vector<TensorSpec>& tensors,
                    const std::map<std::string, std::string>& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) noexcept;

  // Writes `num_bytes` bytes of a tensor from `byte_offset` on, counted from its first byte. Writing a byte
  // twice keeps the last value. An unknown name or a range outside the tensor is an Internal error.
  void write(std::string_view name, int64_t byte_offset, const void* data, int64_t num_bytes);
  // Throws Internal, naming a tensor, unless every byte of every tensor was written.
  void check_complete() const;
  // Calls check_complete(), then puts the file in its place; throws Storage when the disk fails. A writer
  // that is destroyed before this leaves nothing on the disk.
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::io
