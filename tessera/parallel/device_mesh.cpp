#include "tessera/parallel/device_mesh.h"

#include <algorithm>
#include <array>

#include "tessera/core/check_argument.h"
#include "tessera/core/error.h"

namespace tessera::parallel {

DeviceMesh::DeviceMesh(std::shared_ptr<comm::Communicator> world, const ParallelDims& dims)
    : world_(std::move(world)), dims_(dims.resolved(world_->size())) {
  struct Axis {
    const char* name;
    int64_t size;
  };
  const std::array<Axis, 5> axes = {{{kAxisPp, dims_.pp},
                                     {kAxisDpReplicate, dims_.dp_replicate},
                                     {kAxisDpShard, dims_.dp_shard},
                                     {kAxisCp, dims_.cp},
                                     {kAxisTp, dims_.tp}}};
  std::array<int64_t, 5> coordinates{};
  int64_t rest = world_->rank();
  for (size_t a = axes.size(); a-- > 0;) {
    coordinates[a] = rest % axes[a].size;
    rest /= axes[a].size;
  }
  // Makes the group along some axes: its ranks share the coordinates on all other axes. `made` holds the
  // groups by those of their axes that have more than one rank, so that axes with the same ranks share a
  // group.
  std::map<std::vector<size_t>, std::shared_ptr<comm::Communicator>> made;
  const auto make_group = [&](const char* name, const std::vector<size_t>& along) {
    int64_t color = 0, key = 0;
    std::vector<size_t> long_axes;
    for (size_t a = 0; a < axes.size(); ++a) {
      if (std::find(along.begin(), along.end(), a) != along.end()) {
        if (axes[a].size > 1) long_axes.push_back(a);
        key = key * axes[a].size + coordinates[a];
      } else {
        color = color * axes[a].size + coordinates[a];
      }
    }
    std::shared_ptr<comm::Communicator>& group = made[long_axes];
    if (group == nullptr) {
      group = long_axes.empty() ? comm::Communicator::single(device()) : world_->split(color, key, name);
    }
    groups_[name] = group;
  };
  for (size_t a = 0; a < axes.size(); ++a) make_group(axes[a].name, {a});
  make_group(kAxisFsdp, {2, 3});
  make_group(kAxisDp, {1, 2});
  make_group(kAxisLoss, {1, 2, 3});

  // The fsdp axis is cut in two further ways: into neighbours along hpz, and into expert_shard x ep. Each
  // group of a split gets a color of its own: `others` counts the ranks of the mesh that other coordinates
  // put before, so it is a multiple of fsdp, and what is added stays below fsdp. Without experts to share
  // (ep is 1) ep is a group of one and expert_shard is fsdp; with one rank along expert_shard that axis is a
  // group of one.
  const int64_t place = coordinates[2] * dims_.cp + coordinates[3], ep = dims_.ep;
  const int64_t others =
      ((coordinates[0] * dims_.dp_replicate + coordinates[1]) * dims_.tp + coordinates[4]) * dims_.dp_shard *
      dims_.cp;
  const int64_t fsdp = dims_.dp_shard * dims_.cp;
  groups_[kAxisHpz] = dims_.hpz == 1 || dims_.hpz == fsdp
                          ? comm::Communicator::single(device())
                          : world_->split(others + place / dims_.hpz, place % dims_.hpz, kAxisHpz);
  groups_[kAxisEp] = comm::Communicator::single(device());
  groups_[kAxisExpertShard] = groups_[kAxisFsdp];
  if (ep == 1) return;
  groups_[kAxisEp] = world_->split(others + place / ep, place % ep, kAxisEp);
  groups_[kAxisExpertShard] = ep == dims_.dp_shard * dims_.cp
                                  ? comm::Communicator::single(device())
                                  : world_->split(others + place % ep, place / ep, kAxisExpertShard);
}

const std::shared_ptr<comm::Communicator>& DeviceMesh::group(const std::string& axis) const {
  const auto found = groups_.find(axis);
  TESSERA_CHECK_ARGUMENT(found != groups_.end(), "no mesh axis " + axis);
  return found->second;
}

std::map<std::string, comm::Traffic> DeviceMesh::traffic() const {
  std::map<std::string, comm::Traffic> by_axis;
  for (const auto& [axis, group] : groups_) {
    if (group->size() == 1) continue;
    for (const auto& [name, traffic] : group->traffic_by_group()) by_axis[name] = traffic;
  }
  return by_axis;
}

}  // namespace tessera::parallel
