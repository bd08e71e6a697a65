// What other kinds of parallelism have cut of a module before fully_shard() cuts it further.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/comm/communicator.h"
#include "tessera/parallel/layout.h"

namespace tessera::parallel {

// A mesh axis as a rank stands on it.
struct RankAxis {
  std::string name;
  std::shared_ptr<comm::Communicator> group;  // the ranks that differ along it alone
};

// The ranks over which parameters are cut, and those that hold copies of the same cut. For DDP the first
// is a group of one and the second holds all ranks.
struct ShardGroups {
  std::shared_ptr<comm::Communicator> shard;
  std::shared_ptr<comm::Communicator> replicate = comm::Communicator::single();
  // Neighbours in `shard` that keep secondary shards (Wang et al., "ZeRO++", arXiv 2306.10209): what a
  // forward gathered over `shard` stays, cut over these ranks, until the step's last backward has gathered it
  // again from them alone. For ranks of one machine out of several. A group of one: none.
  std::shared_ptr<comm::Communicator> secondary = comm::Communicator::single();
};

// This rank's coordinates on these axes, in their order.
std::vector<int64_t> coordinates_on(const std::vector<RankAxis>& axes);

// The layouts of a module's parameters, which hold this rank's parts already. By tensor, so that a shared
// parameter has one.
class ParameterLayouts {
 public:
  ParameterLayouts() = default;
  explicit ParameterLayouts(std::vector<RankAxis> axes) : axes_(std::move(axes)) {}

  // The axes of every layout but those of set_apart(), in the order in which they cut.
  const std::vector<RankAxis>& axes() const { return axes_; }

  // `parameter` has the shape of this rank's part of a tensor of layout `layout`, which has one placement for
  // each of axes().
  void set(const at::Tensor& parameter, Layout layout);
  // A parameter that only `holders` of one more axis have, and that fully_shard() spreads over `groups` in
  // place of its own. Takes it as the other axes have cut it, on the meta device.
  void set_apart(at::Tensor parameter, const RankAxis& axis, std::vector<int64_t> holders,
                 const ShardGroups& groups);
  // axes(), and that of set_apart().
  std::vector<RankAxis> axes_of(const at::Tensor& parameter) const;
  // Those of set_apart(), or null.
  const ShardGroups* groups_of(const at::Tensor& parameter) const;
  // The layout that was set, or that of a parameter which every rank holds whole, with the same gradient.
  Layout of(const at::Tensor& parameter) const;

 private:
  struct Apart {
    RankAxis axis;
    ShardGroups groups;
  };
  std::vector<RankAxis> axes_;
  std::unordered_map<const c10::TensorImpl*, Layout> layouts_;
  std::unordered_map<const c10::TensorImpl*, Apart> apart_;
};

}  // namespace tessera::parallel
