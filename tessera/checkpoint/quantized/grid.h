// Scales and zero codes that lie in a matrix: one for each tile of rows and group of columns.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/checkpoint/quantized/coded_weight.h"

namespace tessera::checkpoint::quantized {

// Reads a box of a stored tensor as float32: of a floating type, of e4m3, and of bytes and words as numbers.
at::Tensor read_floats(const io::ModelFiles& files, const io::TensorInfo& tensor, const Box& box);

// The group of each column of a weight.
class Groups {
 public:
  // Groups of `size` columns in their order; the last one may be smaller.
  static Groups in_order(int64_t columns, int64_t size) { return Groups(size, (columns + size - 1) / size); }
  // Column i belongs to group index[i]. Indices are from [0, count).
  static Groups of_index(std::vector<int32_t> index, int64_t count);

  int64_t count() const { return count_; }
  // Columns that follow one another in one group: the size of all groups, 1 if they are mixed.
  int64_t size() const { return size_; }
  int64_t of(int64_t column) const {
    return index_.empty() ? column / size_ : static_cast<int64_t>(index_[static_cast<size_t>(column)]);
  }
  // Returns the groups [first, first + count) that contain the columns [begin, begin + num_columns).
  std::pair<int64_t, int64_t> range(int64_t begin, int64_t num_columns) const;

 private:
  Groups(int64_t size, int64_t count) : size_(size), count_(count) {}

  int64_t size_, count_;
  std::vector<int32_t> index_;  // empty: in order
};

// Returns 2^(exponent - 127), which a byte stands for in the OCP's microscaling formats; NaN for 255.
float power_of_two(uint8_t exponent);

// Numbers for rows of a weight and groups of its columns.
class Grid {
 public:
  virtual ~Grid() = default;
  // Returns the numbers of rows [first_row, first_row + rows) and groups [first_group, first_group + groups),
  // [rows, groups] in float32, dense on the host.
  virtual at::Tensor read(int64_t first_row, int64_t rows, int64_t first_group, int64_t groups) const = 0;
};

// One number for all.
std::shared_ptr<const Grid> constant_grid(float value);
// The numbers of a tensor, one for `tile_rows` rows and one group: a matrix [tiles, groups], or with
// `is_turned` [groups, tiles]; also a vector or a scalar of as many numbers.
// exponents: bytes stand for power_of_two(). divided_by: numbers are
// divided by it, then multiplied by times.
struct StoredNumbers {
  int64_t tile_rows = 1;
  bool is_turned = false, are_exponents = false;
  float divided_by = 1.0f, times = 1.0f, plus = 0.0f;
};
std::shared_ptr<const Grid> stored_grid(const Files& files, const io::TensorInfo& tensor, int64_t num_tiles,
                                        int64_t num_groups, const StoredNumbers& numbers = {});

// Returns the scales of blocks whose columns all belong to one group. zeros: null for none.
std::shared_ptr<const Scales> grid_scales(Groups groups, std::shared_ptr<const Grid> scales,
                                          std::shared_ptr<const Grid> zeros = nullptr);

}  // namespace tessera::checkpoint::quantized
