// The one place that knows where the tiles of a tensor lie.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/core/dtype.h"

namespace tessera::parallel {

// An axis-aligned box of a tensor: the elements offset[d] <= i[d] < offset[d] + size[d].
struct Box {
  std::vector<int64_t> offset;
  std::vector<int64_t> size;

  int64_t numel() const;
  bool operator==(const Box&) const = default;
};

// Returns the common part of the boxes; its size is 0 in some dim if there is none.
Box intersect(const Box& a, const Box& b);
// Returns the smallest box that holds all of `boxes`, of which there must be at least one.
Box bounding_box(const std::vector<Box>& boxes);
// Returns `inner`, which lies in `outer`, with its offset counted from that of `outer`.
Box relative_to(const Box& outer, const Box& inner);

// A run of elements that is contiguous both in the row-major global tensor and in the box.
struct ElementRun {
  int64_t global_begin = 0;  // element offset in the global tensor
  int64_t local_begin = 0;   // element offset in the box, row-major
  int64_t count = 0;
};

// Returns the runs of `box` in a tensor of shape `shape`, in order and each as long as possible; none for an
// empty box.
std::vector<ElementRun> contiguous_runs(const std::vector<int64_t>& shape, const Box& box);

// One of the pieces into which a length is cut.
struct Piece {
  int64_t begin = 0;
  int64_t size = 0;
  bool operator==(const Piece&) const = default;
};
// Returns piece `index` of the `count` pieces of `length`. Cuts fall on multiples of `unit` (the elements of
// an attention head, the block of a quantised type). The units are dealt as evenly as possible: if they do
// not divide, the first pieces hold one more. Pieces may be empty.
Piece piece_of(int64_t length, int64_t count, int64_t index, int64_t unit = 1);

// How one mesh axis treats a tensor.
struct Placement {
  enum class Kind { Replicate, Shard, Held };
  Kind kind = Kind::Replicate;
  int64_t dim = 0;   // for Shard: the dim that is cut
  int64_t unit = 1;  // for Shard: cuts fall on multiples of it
  std::vector<int64_t> holders =
      {};  // for Held: the ranks, in order, that have all of it; others have no rows

  static Placement replicate() { return {}; }
  static Placement shard(int64_t dim, int64_t unit = 1) { return {Kind::Shard, dim, unit}; }
  static Placement held_by(std::vector<int64_t> holders) { return {Kind::Held, 0, 1, std::move(holders)}; }
  bool operator==(const Placement&) const = default;
};

// One mesh axis as a layout sees it.
struct AxisPlacement {
  std::string axis;
  int64_t size = 1;
  Placement placement;
  // For a parameter: true if each rank along the axis computes a part of its gradient, so that the parts are
  // to be summed (the ranks read different data, or use the parameter for different parts of an activation).
  // False if each rank computes all of the gradient.
  bool sums_gradient = false;
  bool operator==(const AxisPlacement&) const = default;
};

// Global shape and dtype of a tensor, and its placement on every axis that matters. Axes are listed in the
// order in which they cut: two axes that shard the same dim cut it one after the other (tensor parallel
// first, then the fully sharded axis, as they are applied). What one rank holds of a tensor follows from the
// layout and the rank's coordinates, one on each axis of the layout.
class Layout {
 public:
  Layout() = default;
  // Throws Error(Internal) for a shard dim that the shape does not have, or a size or unit below 1.
  Layout(std::vector<int64_t> shape, DType dtype, std::vector<AxisPlacement> axes);

  const std::vector<int64_t>& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  const std::vector<AxisPlacement>& axes() const { return axes_; }

  // Returns the layout with one more axis, which cuts the parts that the others leave.
  Layout with(AxisPlacement axis) const;
  // Returns the layout of the first `count` axes alone.
  Layout first_axes(size_t count) const;

  int64_t numel() const;
  // Returns the number of ranks over which the tensor is spread, the product of the axes' sizes.
  int64_t num_ranks() const;
  // Returns the box that the rank at `coordinates` (one for each of axes(), in their order) holds.
  Box local_box(const std::vector<int64_t>& coordinates) const;
  // Returns how many ranks hold a copy of each element.
  int64_t num_replicas() const;

  bool operator==(const Layout&) const = default;

 private:
  std::vector<int64_t> shape_;
  DType dtype_ = DType::F32;
  std::vector<AxisPlacement> axes_;
};

}  // namespace tessera::parallel
