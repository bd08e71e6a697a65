// Layouts of a module's parameters as other kinds of parallelism have cut them, before fully_shard() cuts
// them further.
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

// A mesh axis, seen from one rank.
struct RankAxis {
  std::string name;
  std::shared_ptr<comm::Communicator> group;  // the ranks that differ from this one along the axis alone
};

// The ranks over which parameters are cut, and the ranks that hold copies of the same cut. For DDP the first
// is a group of one and the second holds all ranks.
struct ShardGroups {
  std::shared_ptr<comm::Communicator> shard;
  std::shared_ptr<comm::Communicator> replicate = comm::Communicator::single();
  // Neighbours in `shard` that keep secondary shards (Wang et al., "ZeRO++", arXiv 2306.10209): parameters
  // that a forward has gathered over `shard` stay, cut over these ranks, until the step's last backward is
  // over, and backwards gather them from these ranks alone. Meant for the ranks of one machine out of
  // several. A group of one: none.
  std::shared_ptr<comm::Communicator> secondary = comm::Communicator::single();
  // Neighbours in `shard` that run on one machine, and the ranks that have this rank's place on their
  // machines: the two stages in which coded gradients are summed (MixedPrecisionPolicy::codes_gradients). If
  // the first is a group of one, they are summed in one stage.
  std::shared_ptr<comm::Communicator> machine = comm::Communicator::single();
  std::shared_ptr<comm::Communicator> machines = comm::Communicator::single();
};

// Returns this rank's coordinates on these axes, in their order.
std::vector<int64_t> coordinates_on(const std::vector<RankAxis>& axes);

// The layouts of a module's parameters, which already have the shapes of this rank's parts. Layouts are found
// by tensor, so a shared parameter has one.
class ParameterLayouts {
 public:
  ParameterLayouts() = default;
  explicit ParameterLayouts(std::vector<RankAxis> axes) : axes_(std::move(axes)) {}

  // Returns the axes of every layout, in the order in which they cut; set_apart() adds one more to its
  // parameter's.
  const std::vector<RankAxis>& axes() const { return axes_; }

  // Sets the layout of `parameter`, which must have one placement for each of axes(). The parameter already
  // has the shape of this rank's part.
  void set(const at::Tensor& parameter, Layout layout);
  // Places a parameter on only the ranks `holders` of one more axis, `axis`, and has fully_shard() spread it
  // over `groups` instead of its own. The parameter must be on the meta device, as the other axes have cut
  // it; it becomes empty on the other ranks.
  void set_apart(at::Tensor parameter, const RankAxis& axis, std::vector<int64_t> holders,
                 const ShardGroups& groups);
  // Returns axes() and, if set_apart() was called for the parameter, its additional axis.
  std::vector<RankAxis> axes_of(const at::Tensor& parameter) const;
  // Returns the groups that set_apart() gave the parameter, or null.
  const ShardGroups* groups_of(const at::Tensor& parameter) const;
  // Returns the layout that was set. Without one it is that of a parameter that every rank holds whole and
  // computes the whole gradient of.
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
