// Where the tiles of a tensor lie: the one place that knows.
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

// The common part; of size 0 in some dim when there is none.
Box intersect(const Box& a, const Box& b);
// The smallest that holds all of the boxes, of which there is one at least.
Box bounding_box(const std::vector<Box>& boxes);
// Where `inner`, which lies in `outer`, begins in it.
Box relative_to(const Box& outer, const Box& inner);

// A run of elements that is contiguous both in the row-major global tensor and in the box.
struct ElementRun {
  int64_t global_begin = 0;  // element offset in the global tensor
  int64_t local_begin = 0;   // element offset in the box, row-major
  int64_t count = 0;
};

// The runs of `box` in a tensor of shape `shape`, in order, as long as they can be; none for an empty box.
std::vector<ElementRun> contiguous_runs(const std::vector<int64_t>& shape, const Box& box);

// The part of `length` that piece `index` of `count` holds. Cuts fall on multiples of `unit` (the elements of
// an attention head, the block of a quantised type); the units are dealt as evenly as they can be, the first
// pieces holding one more where they do not divide. Pieces may be empty.
struct Piece {
  int64_t begin = 0;
  int64_t size = 0;
  bool operator==(const Piece&) const = default;
};
Piece piece_of(int64_t length, int64_t count, int64_t index, int64_t unit = 1);

// How one mesh axis treats a tensor.
struct Placement {
  enum class Kind { Replicate, Shard, Partial, Held };
  Kind kind = Kind::Replicate;
  int64_t dim = 0;   // for Shard
  int64_t unit = 1;  // for Shard: cuts fall on its multiples
  std::vector<int64_t> holders =
      {};  // for Held: the ranks, in order, that have all of it; others have no rows

  static Placement replicate() { return {}; }
  static Placement shard(int64_t dim, int64_t unit = 1) { return {Kind::Shard, dim, unit}; }
  static Placement partial() { return {Kind::Partial}; }
  static Placement held_by(std::vector<int64_t> holders) { return {Kind::Held, 0, 1, std::move(holders)}; }
  bool operator==(const Placement&) const = default;
};

// One mesh axis as a layout sees it.
struct AxisPlacement {
  std::string axis;
  int64_t size = 1;
  Placement placement;
  // Of a parameter: whether the ranks along the axis compute parts of its gradient, which are to be summed
  // (they read different data, or use it for different parts of an activation), or each all of it.
  bool sums_gradient = false;
  bool operator==(const AxisPlacement&) const = default;
};

// Global shape and dtype of a tensor, and its placement on every axis that matters. Axes are listed in the
// order in which they cut: two axes that shard the same dim cut it one after the other (tensor parallel
// first, then the fully sharded axis, as they are applied). A tensor as one rank holds it is a layout and the
// rank's coordinates, one on each of its axes.
class Layout {
 public:
  Layout() = default;
  // Throws Error(Internal) for a shard dim that the shape does not have, or a size or unit below 1.
  Layout(std::vector<int64_t> shape, DType dtype, std::vector<AxisPlacement> axes);

  const std::vector<int64_t>& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  const std::vector<AxisPlacement>& axes() const { return axes_; }

  // The same tensor, cut by one more axis: the parts that the others leave.
  Layout with(AxisPlacement axis) const;
  // The same tensor before the axes from number `count` on cut it.
  Layout first_axes(size_t count) const;

  int64_t numel() const;
  // Ranks over which the tensor is spread: the product of the axes' sizes.
  int64_t num_ranks() const;
  // The box that the rank at `coordinates` (one per axis, in the order of axes()) holds.
  Box local_box(const std::vector<int64_t>& coordinates) const;
  // Copies of every element over the ranks; partial sums are no copies.
  int64_t num_replicas() const;

  bool operator==(const Layout&) const = default;

 private:
  std::vector<int64_t> shape_;
  DType dtype_ = DType::F32;
  std::vector<AxisPlacement> axes_;
};

}  // namespace tessera::parallel
