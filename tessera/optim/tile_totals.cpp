#include "tessera/optim/tile_totals.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "tessera/core/error.h"

namespace tessera::optim {

std::vector<comm::Communicator*> cutting_groups(const parallel::Layout& layout,
                                                const std::vector<parallel::RankAxis>& axes) {
  TESSERA_ASSERT(axes.size() == layout.axes().size(), "one group for each axis");
  std::vector<comm::Communicator*> groups;
  for (size_t a = 0; a < axes.size(); ++a) {
    const bool is_cut = layout.axes()[a].placement.kind == parallel::Placement::Kind::Shard;
    if (is_cut && axes[a].group->size() > 1) groups.push_back(axes[a].group.get());
  }
  return groups;
}

void TileTotals::add(const at::Tensor& values, comm::ReduceOp op,
                     const std::vector<comm::Communicator*>& groups) {
  if (groups.empty()) return;
  const auto fits = [&](const Share& share) { return share.op == op && share.groups == groups; };
  auto share = std::ranges::find_if(shares_, fits);
  if (share == shares_.end()) share = shares_.insert(share, {groups, op, {}});
  share->values.push_back(values);
}

void TileTotals::join() {
  for (const Share& share : shares_) {
    const at::Tensor all = at::cat(share.values);
    for (comm::Communicator* const group : share.groups) {
      comm::ReduceOptions options;
      options.op = share.op;
      options.hint = "totals of the optimizer";
      group->all_reduce(all, false, options);
    }
    int64_t begin = 0;
    for (const at::Tensor& values : share.values) {
      values.copy_(all.narrow(0, begin, values.numel()));
      begin += values.numel();
    }
  }
  shares_.clear();
}

}  // namespace tessera::optim
