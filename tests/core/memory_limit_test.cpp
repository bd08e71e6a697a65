// Tests of the limits of control groups, as containers and batch systems set them.
#include "tessera/core/memory_limit.h"

#include <gtest/gtest.h>

#include "tests/testing/temp_folder.h"

namespace tessera {
namespace {

TEST(MemoryLimit, NoneWhereNoneIsSet) {
  const testing::TempFolder root;
  EXPECT_FALSE(memory_limit(root.path()));
  root.write("proc/self/cgroup", "0::/job\n");
  root.write("sys/fs/cgroup/job/memory.max", "max\n");
  root.write("sys/fs/cgroup/job/memory.current", "4096\n");
  EXPECT_FALSE(memory_limit(root.path()));
}

TEST(MemoryLimit, TheTightestOfTheGroupsAboveCounts) {
  const testing::TempFolder root;
  root.write("proc/self/cgroup", "0::/user/job/step\n");
  root.write("sys/fs/cgroup/user/memory.max", "1000000\n");
  root.write("sys/fs/cgroup/user/memory.current", "900000\n");
  root.write("sys/fs/cgroup/user/memory.stat", "anon 800000\ninactive_file 50000\n");
  root.write("sys/fs/cgroup/user/job/memory.max", "600000\n");
  root.write("sys/fs/cgroup/user/job/memory.current", "100000\n");
  const auto limit = memory_limit(root.path());
  ASSERT_TRUE(limit);
  EXPECT_EQ(limit->bytes, 1000000);
  EXPECT_EQ(limit->free, 150000);
}

TEST(MemoryLimit, OfTheFirstVersionAndOfAContainer) {
  const testing::TempFolder root;
  root.write("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/host/container\n0::/\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000\n");
  root.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "2500\n");
  const auto limit = memory_limit(root.path());
  ASSERT_TRUE(limit);
  EXPECT_EQ(limit->bytes, 2000);
  EXPECT_EQ(limit->free, 0);
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(memory_limit(root.path()));
}

}  // namespace
}  // namespace tessera
