#include "tessera/parallel/device_mesh.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tessera/core/check_argument.h"
#include "tessera/core/error.h"
#include "tessera/core/host_name.h"

namespace tessera::parallel {

namespace {

// The five axes of a mesh, this rank's place on each, and the groups that are made along them.
class Grid {
 public:
  Grid(const std::shared_ptr<comm::Communicator>& world, const ParallelDims& dims)
      : Grid(world, {dims.pp, dims.dp_replicate, dims.dp_shard, dims.cp, dims.tp}, world->rank()) {}
  Grid(std::shared_ptr<comm::Communicator> world, const std::array<int64_t, 5>& sizes, int64_t rank)
      : world_(std::move(world)), sizes_(sizes) {
    int64_t rest = rank;
    for (size_t a = sizes_.size(); a-- > 0;) {
      coordinates_[a] = rest % sizes_[a];
      rest /= sizes_[a];
    }
  }

  // Makes the group along some axes: its ranks share the coordinates on all other axes.
  std::shared_ptr<comm::Communicator> along(const std::vector<size_t>& axes, const char* name) {
    int64_t color = 0, key = 0, size = 1;
    std::vector<size_t> long_axes;
    for (size_t a = 0; a < sizes_.size(); ++a) {
      if (std::find(axes.begin(), axes.end(), a) != axes.end()) {
        if (sizes_[a] > 1) long_axes.push_back(a);
        key = key * sizes_[a] + coordinates_[a];
        size *= sizes_[a];
      } else {
        color = color * sizes_[a] + coordinates_[a];
      }
    }
    std::shared_ptr<comm::Communicator>& group = made_[long_axes];
    if (group == nullptr) group = long_axes.empty() ? single() : world_->split(color, key, name, size);
    return group;
  }

  // Cut the fsdp axis into parts of `size` neighbours: the part of this rank, and the ranks that have its
  // place in other parts.
  std::shared_ptr<comm::Communicator> neighbours(int64_t size, const char* name) const {
    return world_->split(other_ranks() + place() / size, place() % size, name, size);
  }
  std::shared_ptr<comm::Communicator> across_neighbours(int64_t size, const char* name) const {
    return world_->split(other_ranks() + place() % size, place() / size, name, fsdp() / size);
  }
  // Returns the largest number n for which every group of n neighbours on the fsdp axis is on one machine; 1
  // if all ranks of the axis are. Collective.
  int64_t ranks_of_machine() const {
    const std::vector<std::string> names = world_->all_gather_string(host_name());
    std::vector<std::string> by_place(names.size());
    for (size_t rank = 0; rank < names.size(); ++rank) {
      const Grid grid(world_, sizes_, static_cast<int64_t>(rank));
      by_place[static_cast<size_t>(grid.other_ranks() + grid.place())] = names[rank];
    }
    for (int64_t size = fsdp(); size > 1; --size) {
      if (fsdp() % size != 0) continue;
      bool is_on_one = true;
      for (size_t i = 0; i < by_place.size(); ++i)
        is_on_one = is_on_one && by_place[i] == by_place[i - i % static_cast<size_t>(size)];
      if (is_on_one) return size == fsdp() ? 1 : size;
    }
    return 1;
  }
  std::shared_ptr<comm::Communicator> single() const { return comm::Communicator::single(world_->device()); }
  int64_t fsdp() const { return sizes_[2] * sizes_[3]; }

 private:
  int64_t place() const { return coordinates_[2] * sizes_[3] + coordinates_[3]; }
  // Counts the ranks of the mesh that coordinates on other axes than fsdp put before. It is a multiple of
  // fsdp, and what is added to it for a color stays below fsdp, so each group of a split has its own color.
  int64_t other_ranks() const {
    return ((coordinates_[0] * sizes_[1] + coordinates_[1]) * sizes_[4] + coordinates_[4]) * fsdp();
  }

  std::shared_ptr<comm::Communicator> world_;
  const std::array<int64_t, 5> sizes_;
  std::array<int64_t, 5> coordinates_{};
  // The groups by those of their axes that have more than one rank, so that axes with the same ranks share a
  // group.
  std::map<std::vector<size_t>, std::shared_ptr<comm::Communicator>> made_;
};

}  // namespace

DeviceMesh::DeviceMesh(std::shared_ptr<comm::Communicator> world, const ParallelDims& dims)
    : world_(std::move(world)), dims_(dims.resolved(world_->size())) {
  const std::pair<const char*, std::vector<size_t>> axes[] = {
      {kAxisPp, {0}}, {kAxisDpReplicate, {1}}, {kAxisDpShard, {2}}, {kAxisCp, {3}},
      {kAxisTp, {4}}, {kAxisFsdp, {2, 3}},     {kAxisDp, {1, 2}},   {kAxisLoss, {1, 2, 3}}};
  Grid grid(world_, dims_);
  for (const auto& [name, along] : axes) groups_[name] = grid.along(along, name);
  // The fsdp axis is cut in further ways: into neighbours along hpz, into machine x machines, and into
  // expert_shard x ep. Without experts to share (ep is 1) ep is a group of one and expert_shard is fsdp; with
  // one rank along expert_shard that axis is a group of one.
  const int64_t hpz = dims_.hpz, ep = dims_.ep, fsdp = grid.fsdp();
  groups_[kAxisHpz] = hpz == 1 || hpz == fsdp ? grid.single() : grid.neighbours(hpz, kAxisHpz);
  const int64_t machine = dims_.machine == 0 ? grid.ranks_of_machine() : dims_.machine;
  const bool has_stages = machine > 1 && machine < fsdp;
  groups_[kAxisMachine] = has_stages ? grid.neighbours(machine, kAxisMachine) : grid.single();
  groups_[kAxisMachines] = has_stages ? grid.across_neighbours(machine, kAxisMachines) : grid.single();
  groups_[kAxisEp] = ep == 1 ? grid.single() : grid.neighbours(ep, kAxisEp);
  groups_[kAxisExpertShard] = ep == 1      ? groups_[kAxisFsdp]
                              : ep == fsdp ? grid.single()
                                           : grid.across_neighbours(ep, kAxisExpertShard);
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
