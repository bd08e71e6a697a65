#include "tessera/parallel/layout.h"

#include <algorithm>

#include "tessera/core/error.h"

namespace tessera::parallel {
namespace {

int64_t product(const std::vector<int64_t>& sizes) {
  int64_t result = 1;
  for (const int64_t size : sizes) result *= size;
  return result;
}

}  // namespace

int64_t Box::numel() const { return product(size); }

Box intersect(const Box& a, const Box& b) {
  TESSERA_ASSERT(a.offset.size() == b.offset.size(), "boxes of one tensor have the same rank");
  Box common;
  for (size_t d = 0; d < a.offset.size(); ++d) {
    const int64_t begin = std::max(a.offset[d], b.offset[d]);
    const int64_t end = std::min(a.offset[d] + a.size[d], b.offset[d] + b.size[d]);
    common.offset.push_back(begin);
    common.size.push_back(std::max<int64_t>(0, end - begin));
  }
  return common;
}

Box bounding_box(const std::vector<Box>& boxes) {
  Box bounds = boxes.front();
  for (const Box& box : boxes) {
    for (size_t d = 0; d < bounds.offset.size(); ++d) {
      const int64_t end = std::max(bounds.offset[d] + bounds.size[d], box.offset[d] + box.size[d]);
      bounds.offset[d] = std::min(bounds.offset[d], box.offset[d]);
      bounds.size[d] = end - bounds.offset[d];
    }
  }
  return bounds;
}

Box relative_to(const Box& outer, const Box& inner) {
  Box moved = inner;
  for (size_t d = 0; d < moved.offset.size(); ++d) moved.offset[d] -= outer.offset[d];
  return moved;
}

std::vector<ElementRun> contiguous_runs(const std::vector<int64_t>& shape, const Box& box) {
  TESSERA_ASSERT(shape.size() == box.offset.size() && shape.size() == box.size.size(),
                 "a box has the rank of its tensor");
  if (box.numel() == 0) return {};
  // The dims from `split` on are whole, so one run spans them and the box's part of dim split - 1.
  size_t split = shape.size();
  while (split > 0 && box.size[split - 1] == shape[split - 1]) --split;
  int64_t inner = 1;
  for (size_t d = split; d < shape.size(); ++d) inner *= shape[d];
  if (split == 0) return {{0, 0, inner}};
  const size_t cut = split - 1;
  const int64_t run = box.size[cut] * inner;

  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size() - 1; d > 0; --d) strides[d - 1] = strides[d] * shape[d];
  std::vector<ElementRun> runs;
  std::vector<int64_t> index(cut, 0);  // position within the box in the dims before `cut`
  int64_t local = 0;
  while (true) {
    int64_t global = box.offset[cut] * strides[cut];
    for (size_t d = 0; d < cut; ++d) global += (box.offset[d] + index[d]) * strides[d];
    runs.push_back({global, local, run});
    local += run;
    size_t d = cut;
    while (d > 0 && ++index[d - 1] == box.size[d - 1]) index[--d] = 0;
    if (d == 0) return runs;
  }
}

Piece piece_of(int64_t length, int64_t count, int64_t index, int64_t unit) {
  const int64_t units = (length + unit - 1) / unit;
  const int64_t each = units / count, longer = units % count;
  // The pieces [0, longer) hold one unit more; the last unit may be incomplete.
  const auto begin_of = [&](int64_t piece) {
    return std::min(length, (piece * each + std::min(piece, longer)) * unit);
  };
  return {begin_of(index), begin_of(index + 1) - begin_of(index)};
}

Layout::Layout(std::vector<int64_t> shape, DType dtype, std::vector<AxisPlacement> axes)
    : shape_(std::move(shape)), dtype_(dtype), axes_(std::move(axes)) {
  for (const AxisPlacement& axis : axes_) {
    TESSERA_ASSERT(axis.size >= 1, "axis " + axis.axis + " has no ranks");
    if (axis.placement.kind == Placement::Kind::Held) {
      TESSERA_ASSERT(!axis.placement.holders.empty(), "axis " + axis.axis + " holds the tensor nowhere");
      TESSERA_ASSERT(!shape_.empty(), "a scalar lies on every rank of axis " + axis.axis);
    }
    if (axis.placement.kind != Placement::Kind::Shard) continue;
    TESSERA_ASSERT(axis.placement.dim >= 0 && axis.placement.dim < static_cast<int64_t>(shape_.size()),
                   "axis " + axis.axis + " shards a dim that the tensor does not have");
    TESSERA_ASSERT(axis.placement.unit >= 1, "axis " + axis.axis + " cuts on multiples of nothing");
  }
}

Layout Layout::with(AxisPlacement axis) const {
  std::vector<AxisPlacement> axes = axes_;
  axes.push_back(std::move(axis));
  return Layout(shape_, dtype_, std::move(axes));
}

Layout Layout::first_axes(size_t count) const {
  return Layout(shape_, dtype_, {axes_.begin(), axes_.begin() + static_cast<std::ptrdiff_t>(count)});
}

int64_t Layout::numel() const { return product(shape_); }

int64_t Layout::num_ranks() const {
  int64_t ranks = 1;
  for (const AxisPlacement& axis : axes_) ranks *= axis.size;
  return ranks;
}

Box Layout::local_box(const std::vector<int64_t>& coordinates) const {
  TESSERA_ASSERT(coordinates.size() == axes_.size(), "one coordinate for each axis");
  Box box{std::vector<int64_t>(shape_.size(), 0), shape_};
  for (size_t a = 0; a < axes_.size(); ++a) {
    TESSERA_ASSERT(coordinates[a] >= 0 && coordinates[a] < axes_[a].size,
                   "no such rank on axis " + axes_[a].axis);
    if (axes_[a].placement.kind == Placement::Kind::Held) {
      const auto& holders = axes_[a].placement.holders;
      if (std::find(holders.begin(), holders.end(), coordinates[a]) == holders.end()) box.size[0] = 0;
    }
    if (axes_[a].placement.kind != Placement::Kind::Shard) continue;
    const auto dim = static_cast<size_t>(axes_[a].placement.dim);
    const Piece piece = piece_of(box.size[dim], axes_[a].size, coordinates[a], axes_[a].placement.unit);
    box.offset[dim] += piece.begin;
    box.size[dim] = piece.size;
  }
  return box;
}

int64_t Layout::num_replicas() const {
  int64_t replicas = 1;
  for (const AxisPlacement& axis : axes_) {
    if (axis.placement.kind == Placement::Kind::Replicate) replicas *= axis.size;
    if (axis.placement.kind == Placement::Kind::Held) {
      replicas *= static_cast<int64_t>(axis.placement.holders.size());
    }
  }
  return replicas;
}

}  // namespace tessera::parallel
