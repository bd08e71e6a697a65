// The ranks of a job as a grid with named axes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/core/parallel_dims.h"

namespace tessera::parallel {

inline constexpr const char* kAxisPp = "pp";
inline constexpr const char* kAxisDpReplicate = "dp_replicate";
inline constexpr const char* kAxisDpShard = "dp_shard";
inline constexpr const char* kAxisCp = "cp";
inline constexpr const char* kAxisTp = "tp";
// dp_shard x cp: the ranks over which fully_shard() spreads parameters.
inline constexpr const char* kAxisFsdp = "fsdp";
// Parts of the fsdp axis for experts. Along ep, neighbours share the experts of a layer, each holding some of
// them; along expert_shard, ranks hold the same experts, and fully_shard() spreads those over them.
inline constexpr const char* kAxisEp = "ep";
inline constexpr const char* kAxisExpertShard = "expert_shard";
// Neighbours on the fsdp axis that keep secondary shards (ShardGroups::secondary); a group of one where there
// are none.
inline constexpr const char* kAxisHpz = "hpz";
// Neighbours on the fsdp axis on one machine, and the ranks with the same place on other machines
// (ShardGroups::machine, machines); groups of one where exchanges have one stage.
inline constexpr const char* kAxisMachine = "machine";
inline constexpr const char* kAxisMachines = "machines";
// dp_replicate x dp_shard: the ranks that read different data.
inline constexpr const char* kAxisDp = "dp";
// dp x cp: the ranks that hold different label tokens, over which losses are summed.
inline constexpr const char* kAxisLoss = "loss";

// A grid whose axes are pp, dp_replicate, dp_shard, cp, tp, in this order; the last one varies fastest with
// the rank.
class DeviceMesh {
 public:
  // Collective over `world`.
  DeviceMesh(std::shared_ptr<comm::Communicator> world, const ParallelDims& dims);

  const ParallelDims& dims() const { return dims_; }
  const std::shared_ptr<comm::Communicator>& world() const { return world_; }
  // Returns the device on which this rank computes, which is that of its communicators.
  at::Device device() const { return world_->device(); }
  // Returns the group of the ranks that differ from this one along `axis` only (one of the names above). Axes
  // that span the same ranks share one communicator.
  const std::shared_ptr<comm::Communicator>& group(const std::string& axis) const;
  int64_t size(const std::string& axis) const { return group(axis)->size(); }
  // Returns this rank's coordinate on `axis`.
  int64_t coordinate(const std::string& axis) const { return group(axis)->rank(); }
  // Returns what this rank has sent and waited for so far in each group of more than one rank, keyed by the
  // axis; axes that share a communicator are counted once, under the first one's name. Groups that a layout
  // has split off an axis are listed under their own names.
  std::map<std::string, comm::Traffic> traffic() const;

 private:
  std::shared_ptr<comm::Communicator> world_;
  ParallelDims dims_;
  std::map<std::string, std::shared_ptr<comm::Communicator>> groups_;
};

}  // namespace tessera::parallel
