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
// dp_shard x cp: what fully_shard() spreads over.
inline constexpr const char* kAxisFsdp = "fsdp";
// Of these, neighbours that share the experts of a layer, and the ranks that hold the same experts, over
// which fully_shard() spreads them.
inline constexpr const char* kAxisEp = "ep";
inline constexpr const char* kAxisExpertShard = "expert_shard";
// Neighbours of fsdp that keep secondary shards (ShardGroups::secondary); one rank where there are none.
inline constexpr const char* kAxisHpz = "hpz";
// dp_replicate x dp_shard: the ranks that read different data.
inline constexpr const char* kAxisDp = "dp";
// dp x cp: the ranks that hold different label tokens, over which losses are summed.
inline constexpr const char* kAxisLoss = "loss";

// Axes in the order pp, dp_replicate, dp_shard, cp, tp; the last one varies fastest with the rank.
class DeviceMesh {
 public:
  // Collective over `world`.
  DeviceMesh(std::shared_ptr<comm::Communicator> world, const ParallelDims& dims);

  const ParallelDims& dims() const { return dims_; }
  const std::shared_ptr<comm::Communicator>& world() const { return world_; }
  // Where this rank computes: the device of its communicators.
  at::Device device() const { return world_->device(); }
  // The group of the ranks that differ from this one along `axis` only (one of the names above). Axes that
  // span the same ranks share one.
  const std::shared_ptr<comm::Communicator>& group(const std::string& axis) const;
  int64_t size(const std::string& axis) const { return group(axis)->size(); }
  // This rank's coordinate on `axis`.
  int64_t coordinate(const std::string& axis) const { return group(axis)->rank(); }
  // What this rank has sent and waited for so far in each group of more than one rank, by its axis; of axes
  // that share one, the first. Groups that a layout has split off an axis stand under their own names.
  std::map<std::string, comm::Traffic> traffic() const;

 private:
  std::shared_ptr<comm::Communicator> world_;
  ParallelDims dims_;
  std::map<std::string, std::shared_ptr<comm::Communicator>> groups_;
};

}  // namespace tessera::parallel
