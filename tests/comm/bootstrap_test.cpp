#include "tessera/comm/bootstrap.h"

#include <cstdlib>

#include <gtest/gtest.h>

namespace tessera::comm {
namespace {

TEST(BootstrapTest, SlurmsTasksOfAMachine) {
  EXPECT_EQ(slurm_tasks_of_node("4", 0), 4);
  EXPECT_EQ(slurm_tasks_of_node("4(x2)", 0), 4);
  EXPECT_EQ(slurm_tasks_of_node("4(x2)", 1), 4);
  EXPECT_EQ(slurm_tasks_of_node("4(x2),3", 2), 3);
  EXPECT_EQ(slurm_tasks_of_node("2,16(x10),1", 10), 16);
  EXPECT_EQ(slurm_tasks_of_node("2,16(x10),1", 11), 1);
  EXPECT_EQ(slurm_tasks_of_node("4(x2)", 2), -1);
  for (const char* text : {"", "x", "4(", "4(x", "4(x)", "4(x2", "0", "-3", "4;", "4(x0)"}) {
    EXPECT_EQ(slurm_tasks_of_node(text, 0), -1) << text;
  }
}

TEST(BootstrapTest, RanksOfSlurm) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE"})
    unsetenv(name);
  setenv("SLURM_PROCID", "5", 1);
  setenv("SLURM_STEP_NUM_TASKS", "7", 1);
  setenv("SLURM_LOCALID", "1", 1);
  setenv("SLURM_NODEID", "1", 1);
  setenv("SLURM_STEP_TASKS_PER_NODE", "4,3", 1);
  const LaunchInfo info = launch_info();
  EXPECT_TRUE(info.has_launcher);
  EXPECT_EQ(info.rank, 5);
  EXPECT_EQ(info.size, 7);
  EXPECT_EQ(info.local_rank, 1);
  EXPECT_EQ(info.local_size, 3);
  for (const char* name : {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NODEID",
                           "SLURM_STEP_TASKS_PER_NODE"}) {
    unsetenv(name);
  }
  EXPECT_FALSE(launch_info().has_launcher);
}

}  // namespace
}  // namespace tessera::comm
