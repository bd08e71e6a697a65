#include "tessera/core/parallel_dims.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

std::string refusal(const ParallelDims& dims, int64_t world_size) {
  try {
    dims.resolved(world_size);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-CONFIG-PARALLELISM");
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

TEST(ParallelDimsTest, TheRemainingRanksGoToDpShard) {
  for (const int64_t world : {1, 2, 3, 4, 6, 8}) EXPECT_EQ(ParallelDims{}.resolved(world).dp_shard, world);
  ParallelDims dims;
  dims.dp_replicate = 2;
  EXPECT_EQ(dims.resolved(6).dp_shard, 3);
  dims.tp = 3;
  EXPECT_EQ(dims.resolved(6).dp_shard, 1);
  dims.cp = dims.pp = 2;
  EXPECT_EQ(dims.resolved(48).dp_shard, 2);
}

TEST(ParallelDimsTest, RanksOfExpertsDivideThoseThatShareParameters) {
  ParallelDims dims;
  dims.cp = 2;
  dims.ep = 4;
  EXPECT_EQ(dims.resolved(8).dp_shard, 4);
  dims.ep = 3;
  EXPECT_THAT(refusal(dims, 8), ::testing::HasSubstr("the nearest valid sizes are 2 and 4"));
  EXPECT_EQ(dims.resolved(6).ep, 3);
  dims.ep = 16;
  EXPECT_THAT(refusal(dims, 8), ::testing::HasSubstr("expert_parallel_size: 8"));
  dims.ep = 0;
  EXPECT_THAT(refusal(dims, 8), ::testing::HasSubstr("expert_parallel_size: 1"));
}

TEST(ParallelDimsTest, AProductThatIsNotTheWorldIsRefusedWithItsFactors) {
  ParallelDims dims;
  dims.dp_replicate = 2;
  dims.dp_shard = 2;
  EXPECT_EQ(dims.resolved(4).dp_shard, 2);
  EXPECT_THAT(refusal(dims, 6),
              ::testing::HasSubstr("dp_shard_size does not fit the number of ranks; got dp_shard_size "
                                   "2 x dp_replicate_size 2 and 6 ranks"));
  dims.dp_shard = -1;
  EXPECT_THAT(refusal(dims, 5), ::testing::HasSubstr("dp_replicate_size does not fit the number of ranks"));
  dims.tp = 3;
  EXPECT_THAT(refusal(dims, 4),
              ::testing::HasSubstr("tensor_parallel_size does not fit the number of ranks"));
  for (const int64_t none : {0, -2}) {
    ParallelDims empty;
    empty.dp_shard = none;
    refusal(empty, 4);
    empty = ParallelDims();
    empty.cp = none;
    refusal(empty, 4);
  }
  ParallelDims huge;
  huge.dp_replicate = huge.cp = int64_t{1} << 32;
  refusal(huge, 4);  // the product does not fit into 64 bits
}

TEST(ParallelDimsTest, WhatIsProposedWorks) {
  const auto hint = [](const ParallelDims& dims, int64_t world_size) {
    const std::string text = refusal(dims, world_size);
    return text.substr(text.find("hint: ") + 6);
  };
  ParallelDims dims;
  dims.tp = 4;
  EXPECT_EQ(hint(dims, 6), "the nearest valid sizes are 3 and 6");
  EXPECT_EQ(hint(dims, 3), "tensor_parallel_size: 3");
  dims.tp = 9;
  EXPECT_EQ(hint(dims, 8), "tensor_parallel_size: 8");
  // The hint takes the other sizes into account.
  dims.tp = dims.cp = 2;
  EXPECT_EQ(hint(dims, 6), "the nearest valid sizes are 1 and 3");
  EXPECT_EQ(hint(dims, 5), "the sizes fit 4 or 8 ranks");
  EXPECT_EQ(hint(dims, 2), "context_parallel_size: 1");
  EXPECT_EQ(hint(dims, 1), "the sizes fit 4 ranks");
  dims.dp_shard = 3;
  EXPECT_EQ(hint(dims, 5), "the sizes fit 12 ranks");
  EXPECT_EQ(hint(dims, 6), "context_parallel_size: 1");
  dims.cp = 1;
  EXPECT_EQ(hint(dims, 4), "dp_shard_size: 2, or -1 for all remaining ranks");
}

}  // namespace
}  // namespace tessera
