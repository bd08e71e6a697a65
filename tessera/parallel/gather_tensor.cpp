#include "tessera/parallel/gather_tensor.h"

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/parallel/box_part.h"

namespace tessera::parallel {

at::Tensor gather_tensor(const at::Tensor& tile, const Layout& layout, const std::vector<RankAxis>& axes,
                         const std::string& hint) {
  TESSERA_ASSERT(axes.size() == layout.axes().size(), "one group for each axis");
  const at::NoGradGuard no_grad;
  std::vector<int64_t> coordinates = coordinates_on(axes);
  at::Tensor gathered = tile;
  for (size_t a = axes.size(); a-- > 0;) {
    comm::Communicator& group = *axes[a].group;
    coordinates.resize(a);
    const Placement& placement = layout.axes()[a].placement;
    const bool is_spread =
        placement.kind == Placement::Kind::Shard || placement.kind == Placement::Kind::Held;
    if (!is_spread || group.size() == 1) continue;
    // The boxes of the ranks along this axis make up the box `before`, which the axes up to here left of the
    // tensor.
    const Box before = layout.first_axes(a).local_box(coordinates);
    if (placement.kind == Placement::Kind::Held) {
      const int64_t holder = placement.holders.front();
      gathered = group.rank() == holder ? gathered.detach().contiguous()
                                        : at::empty(before.size, tile.options().requires_grad(false));
      group.broadcast(gathered, holder, false, {comm::hint(hint)});
      continue;
    }
    const Layout cut = layout.first_axes(a + 1);
    std::vector<Box> boxes;
    std::vector<int64_t> counts;
    for (int64_t rank = 0; rank < group.size(); ++rank) {
      std::vector<int64_t> place = coordinates;
      place.push_back(rank);
      boxes.push_back(relative_to(before, cut.local_box(place)));
      counts.push_back(boxes.back().numel());
    }
    const at::Tensor pieces = at::empty({before.numel()}, tile.options().requires_grad(false));
    group.all_gather_v(pieces, gathered.contiguous(), counts, false, {comm::hint(hint)});
    if (placement.dim == 0) {  // the pieces are consecutive rows, in the order of the ranks
      gathered = pieces.view(before.size);
      continue;
    }
    gathered = at::empty(before.size, pieces.options());
    const std::vector<at::Tensor> by_rank = pieces.split_with_sizes(counts);
    for (size_t rank = 0; rank < boxes.size(); ++rank) {
      box_part(gathered, boxes[rank]).copy_(by_rank[rank].view(boxes[rank].size));
    }
  }
  return gathered.is_alias_of(tile) ? gathered.clone() : gathered;
}

}  // namespace tessera::parallel
