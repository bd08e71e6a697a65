#include "tessera/parallel/device_mesh.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/comm/fake/fake_backend.h"

namespace tessera::parallel {
namespace {

TEST(DeviceMeshTest, TheLastAxisVariesFastest) {
  comm::run_fake_ranks(6, [](const auto& world) {
    ParallelDims dims;
    dims.dp_replicate = 2;
    dims.tp = 3;
    const DeviceMesh mesh(world, dims);
    EXPECT_EQ(mesh.coordinate(kAxisTp), world->rank() % 3);
    EXPECT_EQ(mesh.coordinate(kAxisDpReplicate), world->rank() / 3);
    EXPECT_EQ(mesh.size(kAxisFsdp), 1);
    EXPECT_EQ(mesh.size(kAxisDp), 2);
  });
}

TEST(DeviceMeshTest, ExpertsAreSharedByNeighboursOfTheShardAxis) {
  comm::run_fake_ranks(12, [](const auto& world) {
    ParallelDims dims;
    dims.tp = 2;
    dims.ep = 3;
    const DeviceMesh mesh(world, dims);
    EXPECT_EQ(mesh.size(kAxisFsdp), 6);
    EXPECT_EQ(mesh.coordinate(kAxisEp), world->rank() / 2 % 3);
    EXPECT_EQ(mesh.size(kAxisExpertShard), 2);
    EXPECT_EQ(mesh.coordinate(kAxisExpertShard), world->rank() / 6);
  });
}

TEST(DeviceMeshTest, MachinesHoldNeighboursOfTheShardAxis) {
  comm::run_fake_ranks(12, [](const auto& world) {
    ParallelDims dims;
    dims.tp = 2;
    dims.machine = 3;
    const DeviceMesh mesh(world, dims);
    EXPECT_EQ(mesh.size(kAxisMachine), 3);
    EXPECT_EQ(mesh.coordinate(kAxisMachine), world->rank() / 2 % 3);
    EXPECT_EQ(mesh.size(kAxisMachines), 2);
    EXPECT_EQ(mesh.coordinate(kAxisMachines), world->rank() / 6);
    // All ranks are on this machine, so there is nothing to do in two stages.
    dims.machine = 0;
    EXPECT_EQ(DeviceMesh(world, dims).size(kAxisMachine), 1);
  });
}

TEST(DeviceMeshTest, TrafficIsThatOfEachAxisOfMoreThanOneRank) {
  comm::run_fake_ranks(6, [](const auto& world) {
    ParallelDims dims;
    dims.tp = 3;
    const DeviceMesh mesh(world, dims);
    const auto before = mesh.traffic();
    ASSERT_EQ(before.size(), 2U);
    // The axes dp_shard and loss have the same ranks here.
    mesh.group(kAxisLoss)->all_reduce(at::ones({8}, at::kFloat));
    mesh.group(kAxisTp)->all_gather_single(at::ones({6}, at::kFloat), at::ones({2}, at::kFloat));
    const auto after = mesh.traffic();
    EXPECT_EQ((after.at("dp_shard") - before.at("dp_shard")).bytes_sent, 32);
    EXPECT_EQ((after.at("tp") - before.at("tp")).bytes_sent, 16);
  });
}

}  // namespace
}  // namespace tessera::parallel
