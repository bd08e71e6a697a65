#include "tessera/parallel/device_mesh.h"

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

}  // namespace
}  // namespace tessera::parallel
