// Tensors as files keep them, under the files' own names, read by boxes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/core/content_hash.h"
#include "tessera/io/model_files.h"
#include "tessera/io/weight_blocks.h"
#include "tessera/parallel/layout.h"

namespace tessera::checkpoint {

// Tells whether weights are read from tensors of this type: F64, F32, F16 and BF16.
bool is_weight_dtype(DType dtype);

// Returns the box that is all of a tensor of this shape.
parallel::Box whole_box(const std::vector<int64_t>& shape);
// Returns the box of rows [first, first + count) along dim 0. A scalar counts as one row.
parallel::Box row_box(const std::vector<int64_t>& shape, int64_t first, int64_t count);
// Calls f(first, count) for the rows of a tensor of this shape in their order, so many at a time that they
// take 16 MiB at most, or one row; an element takes `element_bytes`.
template <class F>
void for_each_rows(const std::vector<int64_t>& shape, int64_t element_bytes, const F& f) {
  constexpr int64_t kPieceBytes = int64_t{16} << 20;
  const int64_t rows = shape.empty() ? 1 : shape.front();
  const int64_t row_elements = rows == 0 ? 0 : whole_box(shape).numel() / rows;
  if (row_elements == 0) return;
  const int64_t step = std::max<int64_t>(1, kPieceBytes / (element_bytes * row_elements));
  for (int64_t first = 0; first < rows; first += step) f(first, std::min(step, rows - first));
}

// Reads `box` of a stored tensor, which may be cut along any of its dims, into `destination`: a tensor of the
// box's size with any strides on any device. Values are converted to its type, floating ones to floating ones
// and integers to integers. Needs at most 16 MiB of memory beside the destination, and none if the types
// agree and the box is one contiguous run in the file and in memory of the host. Throws Error(Model) for a
// missing tensor, and Error(Model, "DTYPE") for a conversion that is not supported: from floating types other
// than F64, F32, F16 and BF16, or between floating types and integers.
void read_box(const io::ModelFiles& files, const std::string& name, const parallel::Box& box,
              const at::Tensor& destination);
// Reads in the same way from a tensor of one file.
void read_box(const io::SafetensorsFile& file, const io::TensorInfo& tensor, const parallel::Box& box,
              const at::Tensor& destination);

// The tensors of a folder or file of any format, which can be read by boxes. Safe to read from several
// threads.
class StoredTensors {
 public:
  virtual ~StoredTensors() = default;
  StoredTensors(const StoredTensors&) = delete;
  StoredTensors& operator=(const StoredTensors&) = delete;

  const std::vector<io::TensorSpec>& tensors() const { return tensors_; }
  // Returns null if there is no such tensor.
  const io::TensorSpec* find(std::string_view name) const;
  // Path of the folder or file, for errors.
  const std::string& place() const { return place_; }

  // Reads `box` of the tensor `name` as read_box() does.
  virtual void read(const std::string& name, const parallel::Box& box,
                    const at::Tensor& destination) const = 0;
  // Returns the form in which read_blocks() gives a tensor's rows; nothing for a tensor of plain values.
  virtual std::optional<io::BlockForm> form(const std::string& name) const;
  // Reads `box` of a tensor that has a form, a matrix, as blocks; the box's columns are whole blocks. A
  // tensor with a form that shows as [matrices, in, out] is read as the matrix [matrices * out, in].
  // destination: bytes, [rows, form.row_bytes(columns)], on the host, dense.
  virtual void read_blocks(const std::string& name, const parallel::Box& box,
                           const at::Tensor& destination) const;
  // Adds to the hash the names, types and shapes of all tensors; a model's files add a sample of their
  // values: some of each MiB, so that large files cost little.
  virtual void add_sample(ContentHash& hash) const;

 protected:
  StoredTensors(std::string place, std::vector<io::TensorSpec> tensors);

 private:
  std::string place_;
  std::vector<io::TensorSpec> tensors_;
  std::unordered_map<std::string_view, size_t> index_;
};

// Returns the type of most elements of the tensors whose type is_weight_dtype(); F32 if there are none.
DType main_dtype(const StoredTensors& tensors);

// Returns the tensors of the safetensors files of a folder.
std::shared_ptr<const StoredTensors> stored_tensors(std::shared_ptr<const io::ModelFiles> files);

}  // namespace tessera::checkpoint
