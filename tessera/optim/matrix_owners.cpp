#include "tessera/optim/matrix_owners.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/parallel/box_part.h"
#include "tessera/parallel/gather_tensor.h"

namespace tessera::optim {
namespace {

// A matrix on the axes that spread it over this rank and others. A rank of Placement::Held has all that the
// other axes leave, so such an axis is left out.
struct Spread {
  parallel::Layout layout;
  std::vector<parallel::RankAxis> axes;

  explicit Spread(const TiledMatrix& matrix) : layout(matrix.layout.shape(), matrix.layout.dtype(), {}) {
    for (size_t a = 0; a < matrix.axes.size(); ++a) {
      const parallel::AxisPlacement& axis = matrix.layout.axes()[a];
      if (axis.placement.kind == parallel::Placement::Kind::Held) continue;
      layout = layout.with(axis);
      axes.push_back(matrix.axes[a]);
    }
  }
  // Returns the coordinates of rank number `number` of those that share the matrix.
  std::vector<int64_t> coordinates_of(int64_t number) const {
    std::vector<int64_t> coordinates;
    for (const parallel::RankAxis& axis : axes) {
      coordinates.push_back(number % axis.group->size());
      number /= axis.group->size();
    }
    return coordinates;
  }
  // Brings `x`, which the rank at `owner` has, to all ranks. After the broadcasts along the last axes the
  // ranks that share the owner's first coordinates have it.
  void broadcast(const at::Tensor& x, const std::vector<int64_t>& owner, const std::string& name) const {
    for (size_t a = axes.size(); a-- > 0;) {
      if (axes[a].group->size() > 1) axes[a].group->broadcast(x, owner[a], false, {comm::hint(name)});
    }
  }
};

// A matrix in the course of its transformation.
struct Work {
  const TiledMatrix& matrix;
  Spread spread;
  std::vector<int64_t> owner, own;  // coordinates
  at::TensorOptions options = {};
  at::Tensor whole = {}, result = {};

  // `number` is the place of the matrix in the list of all.
  Work(const TiledMatrix& tiled, size_t number)
      : matrix(tiled),
        spread(tiled),
        owner(spread.coordinates_of(static_cast<int64_t>(number) % spread.layout.num_ranks())),
        own(parallel::coordinates_on(spread.axes)) {}

  void gather() {
    const at::Tensor part = matrix.part();
    options = part.options();
    const at::Tensor gathered = parallel::gather_tensor(part, spread.layout, spread.axes, matrix.name);
    if (owner == own) whole = gathered;
  }
  void transform() {
    if (!whole.defined()) return;
    result = matrix.transform(whole);
    whole = at::Tensor();
  }
  void deal() {
    const bool is_whole = !matrix.result_shape.empty();
    if (!result.defined())
      result = at::empty(is_whole ? matrix.result_shape : spread.layout.shape(), options);
    spread.broadcast(result, owner, matrix.name);
    matrix.take(is_whole ? result : parallel::box_part(result, spread.layout.local_box(own)).contiguous());
    result = at::Tensor();
  }
};

}  // namespace

void transform_matrices(const std::vector<TiledMatrix>& matrices) {
  int64_t at_once = 1;
  for (const TiledMatrix& matrix : matrices) at_once = std::max(at_once, Spread(matrix).layout.num_ranks());
  for (size_t begin = 0; begin < matrices.size(); begin += static_cast<size_t>(at_once)) {
    const size_t end = std::min(begin + static_cast<size_t>(at_once), matrices.size());
    std::vector<Work> works;
    for (size_t i = begin; i < end; ++i) {
      if (matrices[i].part) works.emplace_back(matrices[i], i);
    }
    for (Work& work : works) work.gather();
    for (Work& work : works) work.transform();
    for (Work& work : works) work.deal();
  }
}

}  // namespace tessera::optim
