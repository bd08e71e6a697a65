// Tests of sums of coded gradients over ranks that are threads.
#include "tessera/parallel/fsdp/coded_reduce.h"

#include <limits>

#include <gtest/gtest.h>

#include "tessera/comm/fake/fake_backend.h"

#include "tests/parallel/coded_gradients.h"

namespace tessera::parallel {
namespace {

// The ranks share memory within machines only if ranks_per_node is set.
TEST(CodedReduceTest, SumsAreThoseOfTheCodes) {
  for (const auto& [ranks, machine] : {std::pair{2, 1}, {3, 1}, {4, 1}, {4, 2}, {6, 2}, {6, 3}}) {
    for (const int64_t ranks_per_node : {0, 2}) {
      for (const bool averages : {false, true}) {
        comm::run_fake_ranks(
            ranks, [&](const auto& world) { testing::check_coded_gradients(world, machine, averages); },
            ranks_per_node);
      }
    }
  }
}

// Sums that ranks of dp_replicate share are added exactly, after the codes of each replica.
TEST(CodedReduceTest, ReplicasAddTheirSums) {
  comm::run_fake_ranks(4, [](const auto& world) {
    ParallelDims dims;
    dims.dp_replicate = 2;
    const DeviceMesh mesh(world, dims);
    testing::ToyModel model;
    ShardOptions options;
    options.average_gradients = false;
    options.mixed_precision.codes_gradients = true;
    const auto sharded =
        fully_shard(model, {mesh.group(kAxisFsdp), mesh.group(kAxisDpReplicate)}, model.units(), options);
    const auto batch = testing::toy_batch(world->rank());
    model.loss(batch.words, batch.labels).backward();
    at::Tensor wanted;
    for (int64_t rank = 0; rank < 4; ++rank) {
      testing::ToyModel alone;
      const auto its_batch = testing::toy_batch(rank);
      alone.loss(its_batch.words, its_batch.labels).backward();
      const at::Tensor added = testing::through_codes(alone.blocks[0]->up.grad());
      wanted = wanted.defined() ? wanted + added : added;
    }
    for (const auto& parameter : sharded->parameters()) {
      if (parameter.name != "block0.up") continue;
      const at::Tensor own = wanted.narrow(0, parameter.box.offset[0], parameter.box.size[0]);
      EXPECT_TRUE(at::allclose(parameter.tile.grad().to(at::kFloat), own, 1e-5, 1e-6));
    }
  });
}

// A gradient that is not finite shows on the rank that owns it, so that the step can be skipped.
TEST(CodedReduceTest, WhatIsNotFiniteArrives) {
  for (const int64_t machine : {1, 2}) {
    comm::run_fake_ranks(4, [&](const auto& world) {
      ParallelDims dims;
      dims.machine = machine;
      const DeviceMesh mesh(world, dims);
      const at::Tensor gradient = at::ones({8, 6}, at::kFloat);
      if (world->rank() == 3) gradient[5][2] = std::numeric_limits<float>::quiet_NaN();
      const at::Tensor sum = at::empty({2, 6}, at::kFloat);
      std::vector<detail::CodedPart> parts;
      parts.push_back({{gradient, sum, comm::even_pieces(48, 4)}, ops::RowCodes(4, 6)});
      detail::start_coded_reduce(std::move(parts),
                                 {world, comm::Communicator::single(), comm::Communicator::single(),
                                  mesh.group(kAxisMachine), mesh.group(kAxisMachines)},
                                 "a test")
          ->wait();
      EXPECT_EQ(sum.isfinite().all().template item<bool>(), world->rank() != 2);
      const at::Tensor wanted = at::full({2, 6}, 4.0f);
      EXPECT_EQ(at::allclose(sum, wanted), world->rank() != 2);
    });
  }
}

}  // namespace
}  // namespace tessera::parallel
