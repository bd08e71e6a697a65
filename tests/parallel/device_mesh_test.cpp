#include "tessera/parallel/device_mesh.h"

#include <gtest/gtest.h>

#include "tessera/comm/fake/fake_backend.h"
#include "tessera/core/error.h"

namespace tessera::parallel {
namespace {

TEST(DeviceMeshTest, TheRemainingRanksGoToDpShard) {
  ParallelDims dims;
  dims.dp_replicate = 2;
  EXPECT_EQ(dims.resolved(6).dp_shard, 3);
  EXPECT_EQ(ParallelDims{}.resolved(1).dp_shard, 1);
}

TEST(DeviceMeshTest, AProductThatIsNotTheWorldIsRefusedWithItsFactors) {
  ParallelDims dims;
  dims.dp_replicate = 2;
  dims.dp_shard = 2;
  try {
    dims.resolved(6);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Config);
    EXPECT_NE(std::string(error.what()).find("dp_replicate 2 x dp_shard 2"), std::string::npos)
        << error.what();
  }
  dims.dp_shard = -1;
  EXPECT_THROW(dims.resolved(5), Error);
  dims.dp_replicate = int64_t{1} << 32;
  dims.cp = int64_t{1} << 32;
  EXPECT_THROW(dims.resolved(4), Error) << "a product beyond 64 bits";
  dims.cp = 1;
  dims.dp_replicate = 0;
  EXPECT_THROW(dims.resolved(4), Error);
}

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
