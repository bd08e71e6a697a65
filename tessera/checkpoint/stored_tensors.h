// Tensors as files keep them, under the files' own names, read by boxes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/io/model_files.h"
#include "tessera/parallel/layout.h"

namespace tessera::checkpoint {

// Whether weights are read from tensors of this type: F64, F32, F16 and BF16.
bool is_weight_dtype(DType dtype);

// All of a tensor of this shape.
parallel::Box whole_box(const std::vector<int64_t>& shape);
// Rows [first, first + count) along dim 0; of a scalar, which has one row, all.
parallel::Box row_box(const std::vector<int64_t>& shape, int64_t first, int64_t count);

// Reads `box` of a stored tensor, any cut of any number of dims, into `destination`: a tensor of the box's
// size with any strides, to whose type floating values are converted to floating ones, and integers to
// integers. Needs at most 16 MiB beside it, and nothing where the types agree and the box is one run of the
// file and of the memory of the CPU. Throws Error(Model) for a missing tensor, and "DTYPE" for stored types
// that are not read: floating ones other than F64, F32, F16 and BF16 that would have to be converted.
void read_box(const io::ModelFiles& files, const std::string& name, const parallel::Box& box,
              const at::Tensor& destination);
// The same of a tensor of one file.
void read_box(const io::SafetensorsFile& file, const io::TensorInfo& tensor, const parallel::Box& box,
              const at::Tensor& destination);

// What read_box() is of one folder, for files of any format. Safe to read from several threads.
class StoredTensors {
 public:
  virtual ~StoredTensors() = default;
  StoredTensors(const StoredTensors&) = delete;
  StoredTensors& operator=(const StoredTensors&) = delete;

  const std::vector<io::TensorSpec>& tensors() const { return tensors_; }
  // Null when there is no such tensor.
  const io::TensorSpec* find(std::string_view name) const;
  // The folder or file, for errors.
  const std::string& place() const { return place_; }

  // As read_box().
  virtual void read(const std::string& name, const parallel::Box& box,
                    const at::Tensor& destination) const = 0;

 protected:
  StoredTensors(std::string place, std::vector<io::TensorSpec> tensors);

 private:
  std::string place_;
  std::vector<io::TensorSpec> tensors_;
  std::unordered_map<std::string_view, size_t> index_;
};

// The safetensors files of a folder.
std::shared_ptr<const StoredTensors> stored_tensors(std::shared_ptr<const io::ModelFiles> files);

}  // namespace tessera::checkpoint
