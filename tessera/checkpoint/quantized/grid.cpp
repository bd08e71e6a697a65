#include "tessera/checkpoint/quantized/grid.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "tessera/checkpoint/quantized/parts.h"
#include "tessera/checkpoint/stored_tensors.h"
#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/device/host_memory.h"
#include "tessera/device/torch_dtype.h"

namespace tessera::checkpoint::quantized {
namespace {

class ConstantGrid : public Grid {
 public:
  explicit ConstantGrid(float value) : value_(value) {}
  at::Tensor read(int64_t, int64_t rows, int64_t, int64_t groups) const override {
    return at::full({rows, groups}, value_, on_host(at::kFloat));
  }

 private:
  float value_;
};

class StoredGrid : public Grid {
 public:
  StoredGrid(Files files, const io::TensorInfo& tensor, int64_t num_groups, const StoredNumbers& numbers)
      : files_(std::move(files)), tensor_(&tensor), num_groups_(num_groups), numbers_(numbers) {}

  at::Tensor read(int64_t first_row, int64_t rows, int64_t first_group, int64_t groups) const override {
    const int64_t tile = first_row / numbers_.tile_rows;
    const int64_t tiles = (first_row + rows - 1) / numbers_.tile_rows - tile + 1;
    at::Tensor values = read_tiles(tile, tiles, first_group, groups);
    if (numbers_.are_exponents) values = powers_of_two(values);
    if (numbers_.divided_by != 1.0f) values = values / numbers_.divided_by;
    if (numbers_.times != 1.0f) values = values * numbers_.times;
    if (numbers_.plus != 0.0f) values = values + numbers_.plus;
    if (numbers_.tile_rows == 1) return values.contiguous();
    const at::Tensor row = at::arange(first_row, first_row + rows, on_host(at::kLong));
    return values.index_select(0, row.div(numbers_.tile_rows, "floor") - tile);
  }

 private:
  static at::Tensor powers_of_two(const at::Tensor& exponents) {
    at::Tensor values = exponents.contiguous();
    float* const numbers = values.mutable_data_ptr<float>();
    for (int64_t i = 0; i < values.numel(); ++i) numbers[i] = power_of_two(static_cast<uint8_t>(numbers[i]));
    return values;
  }

  // Returns [tiles, groups].
  at::Tensor read_tiles(int64_t tile, int64_t tiles, int64_t group, int64_t groups) const {
    const size_t dims = tensor_->shape.size();
    if (dims == 2) {
      if (!numbers_.is_turned) return read_floats(*files_, *tensor_, {{tile, group}, {tiles, groups}});
      return read_floats(*files_, *tensor_, {{group, tile}, {groups, tiles}}).t();
    }
    if (dims == 0) return read_floats(*files_, *tensor_, {}).view({1, 1});
    // A vector is a matrix of one column, or of one row.
    const bool is_column = num_groups_ == 1;
    const Box box = is_column ? Box{{tile}, {tiles}} : Box{{group}, {groups}};
    return read_floats(*files_, *tensor_, box).view({tiles, groups});
  }

  const Files files_;
  const io::TensorInfo* const tensor_;
  const int64_t num_groups_;
  const StoredNumbers numbers_;
};

class GridScales : public Scales {
 public:
  GridScales(Groups groups, std::shared_ptr<const Grid> scales, std::shared_ptr<const Grid> zeros)
      : groups_(std::move(groups)), scales_(std::move(scales)), zeros_(std::move(zeros)) {}

  void read(const Box& box, int64_t elements, float* scales, float* zeros) const override {
    copy(*scales_, box, elements, scales);
    TESSERA_ASSERT((zeros == nullptr) == (zeros_ == nullptr), "zeros for a form that has them");
    if (zeros != nullptr) copy(*zeros_, box, elements, zeros);
  }

 private:
  void copy(const Grid& grid, const Box& box, int64_t elements, float* to) const {
    const auto [first, count] = groups_.range(box.offset[1], box.size[1]);
    const at::Tensor values = grid.read(box.offset[0], box.size[0], first, count);
    const float* const from = values.const_data_ptr<float>();
    const int64_t num_blocks = box.size[1] / elements;
    std::vector<int64_t> group(static_cast<size_t>(num_blocks));
    for (int64_t k = 0; k < num_blocks; ++k) {
      group[static_cast<size_t>(k)] = groups_.of(box.offset[1] + k * elements) - first;
    }
    for (int64_t row = 0; row < box.size[0]; ++row) {
      for (int64_t k = 0; k < num_blocks; ++k) *to++ = from[row * count + group[static_cast<size_t>(k)]];
    }
  }

  const Groups groups_;
  const std::shared_ptr<const Grid> scales_, zeros_;
};

}  // namespace

at::Tensor read_floats(const io::ModelFiles& files, const io::TensorInfo& tensor, const Box& box) {
  const bool is_plain = is_weight_dtype(tensor.dtype);
  const at::Tensor stored =
      at::empty(box.size, on_host(is_plain ? at::kFloat : to_scalar_type(tensor.dtype)));
  read_box(files, tensor.name, box, stored);
  return stored.to(at::kFloat);
}

float power_of_two(uint8_t exponent) {
  return exponent == 255 ? NAN : std::ldexp(1.0f, static_cast<int>(exponent) - 127);
}

Groups Groups::of_index(std::vector<int32_t> index, int64_t count) {
  // A file may give the index of groups that are in order.
  const auto columns = static_cast<int64_t>(index.size());
  const int64_t size = std::max<int64_t>(1, (columns + count - 1) / count);
  bool is_in_order = true;
  for (int64_t i = 0; i < columns; ++i)
    is_in_order = is_in_order && index[static_cast<size_t>(i)] == i / size;
  Groups groups(is_in_order ? size : 1, count);
  if (!is_in_order) groups.index_ = std::move(index);
  return groups;
}

std::pair<int64_t, int64_t> Groups::range(int64_t begin, int64_t num_columns) const {
  if (!index_.empty()) return {0, count_};
  const int64_t first = begin / size_;
  return {first, (begin + num_columns - 1) / size_ - first + 1};
}

std::shared_ptr<const Grid> constant_grid(float value) { return std::make_shared<ConstantGrid>(value); }

std::shared_ptr<const Grid> stored_grid(const Files& files, const io::TensorInfo& tensor, int64_t num_tiles,
                                        int64_t num_groups, const StoredNumbers& numbers) {
  std::vector<int64_t> need = {num_tiles, num_groups};
  if (numbers.is_turned) std::swap(need[0], need[1]);
  const bool is_matrix = tensor.shape == need;
  const bool is_short = tensor.shape.size() < 2 && (num_tiles == 1 || num_groups == 1) &&
                        tensor.numel() == num_tiles * num_groups;
  if (!is_matrix && !is_short) {
    throw broken(*files, tensor.name, "the scales or zeros of a quantised weight have another shape")
        .got(format_shape(tensor.shape))
        .need(format_shape(need));
  }
  return std::make_shared<StoredGrid>(files, tensor, num_groups, numbers);
}

std::shared_ptr<const Scales> grid_scales(Groups groups, std::shared_ptr<const Grid> scales,
                                          std::shared_ptr<const Grid> zeros) {
  return std::make_shared<GridScales>(std::move(groups), std::move(scales), std::move(zeros));
}

}  // namespace tessera::checkpoint::quantized
