// Checks of the order of operations over several groups, which run over the fake ranks and over MPI.
#pragma once

#include <algorithm>
#include <cstdio>
#include <functional>
#include <random>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/comm/communicator.h"
#include "tessera/core/error.h"

#include "tests/comm/collectives.h"

namespace tessera::testing {

// Lets every rank submit operations to several groups of the same ranks, and messages, in an order of its
// own. Only the order within each group is the same on all ranks.
inline void check_any_order_across_groups(comm::Communicator& world, bool may_share_memory) {
  const unsigned seed = 20'000 + static_cast<unsigned>(world.size());
  if (world.rank() == 0) std::printf("seed %u\n", seed);
  std::mt19937 random(seed + static_cast<unsigned>(world.rank()) * 7919);
  constexpr int kGroups = 4, kRounds = 8;
  const int64_t n = world.size(), rank = world.rank(), count = 50'000;
  std::vector<std::shared_ptr<comm::Communicator>> groups;
  for (int g = 0; g < kGroups; ++g) {
    groups.push_back(world.split(0, g % 2 == 0 ? rank : -rank, "group " + std::to_string(g)));
    groups.back()->set_shared_memory(may_share_memory);
  }
  std::vector<at::Tensor> sums, gathered, arrived;
  std::vector<std::shared_ptr<comm::Work>> works;
  std::vector<int> next(kGroups + 1, 0);  // the round of each group, and of the messages
  for (int left = (kGroups + 1) * kRounds; left > 0; --left) {
    size_t g = random() % next.size();
    while (next[g] == kRounds) g = (g + 1) % next.size();
    const int round = next[g]++;
    if (g == kGroups) {
      arrived.push_back(at::full({count}, -1.0, on(world, at::kDouble)));
      works.push_back(
          world.batch_p2p({comm::irecv(arrived.back(), (rank + n - 1) % n, round),
                           comm::isend(at::full({count}, static_cast<double>(round), on(world, at::kDouble)),
                                       (rank + 1) % n, round)},
                          true));
      continue;
    }
    sums.push_back(at::full({count}, static_cast<double>(round), on(world, at::kDouble)));
    works.push_back(groups[g]->all_reduce(sums.back(), true));
    gathered.push_back(at::empty({n * count}, on(world, at::kDouble)));
    works.push_back(groups[g]->all_gather_single(
        gathered.back(), at::full({count}, static_cast<double>(round), on(world, at::kDouble)), true));
  }
  std::shuffle(works.begin(), works.end(), random);
  for (const auto& work : works) work->wait();
  const auto total = [](const std::vector<at::Tensor>& tensors) {
    double sum = 0;
    for (const at::Tensor& tensor : tensors) sum += tensor[-1].item<double>();
    return sum;
  };
  constexpr double kTotal = kGroups * kRounds * (kRounds - 1) / 2.0;
  EXPECT_EQ(total(gathered), kTotal);
  EXPECT_EQ(total(sums), kTotal * static_cast<double>(n));
  for (int round = 0; round < kRounds; ++round) {
    EXPECT_TRUE(arrived[round].eq(static_cast<double>(round)).all().item<bool>());
  }
}

// Checks a pipeline of two stages, each sharded over two ranks: two ranks gather their stage's parameters
// before their messages, the other two after them.
inline void check_pipeline_order(comm::Communicator& world) {
  if (world.size() != 4) return;
  const int64_t rank = world.rank(), stage = rank / 2, shard_rank = rank % 2, count = 1'000'000;
  const auto pipeline = world.split(shard_rank, stage, "pp"),
             shard = world.split(stage, shard_rank, "dp_shard");
  const at::Tensor activations = at::full({count}, static_cast<double>(shard_rank), on(world, at::kFloat));
  const at::Tensor arrived = at::empty({count}, on(world, at::kFloat)),
                   own = at::full({count}, static_cast<double>(rank), on(world, at::kFloat));
  const at::Tensor parameters = at::empty({2 * count}, on(world, at::kFloat));
  for (int round = 0; round < 5; ++round) {
    std::shared_ptr<comm::Work> message, gather;
    const auto start_message = [&] {
      message = stage == 0 ? pipeline->recv(arrived, 1, 0, true) : pipeline->send(activations, 0, 0, true);
    };
    const auto start_gather = [&] { gather = shard->all_gather_single(parameters, own, true); };
    if ((stage == 0) == (shard_rank == 0)) {
      start_message();
      start_gather();
    } else {
      start_gather();
      start_message();
    }
    gather->wait();
    message->wait();
    EXPECT_EQ(parameters[0].item<double>(), static_cast<double>(2 * stage));
    EXPECT_EQ(parameters[-1].item<double>(), static_cast<double>(2 * stage + 1));
    if (stage == 0) {
      EXPECT_EQ(arrived[-1].item<double>(), static_cast<double>(shard_rank));
    }
  }
}

// Checks an operation of one group that must come after the operation of another group whose result it reads.
inline void check_after(comm::Communicator& world) {
  const auto first = world.split(0, world.rank(), "first"), second = world.split(0, world.rank(), "second");
  const auto n = static_cast<double>(world.size());
  for (int round = 0; round < 10; ++round) {
    const at::Tensor value = at::ones({300'000}, on(world, at::kDouble)),
                     copy = at::zeros({300'000}, on(world, at::kDouble));
    const auto a = first->all_reduce(value, true);
    comm::ReduceOptions options;
    options.after = a;
    const auto b = second->all_reduce(value, true, options);
    b->wait_host();
    b->wait();
    EXPECT_TRUE(a->is_done());
    EXPECT_TRUE(value.eq(n * n).all().item<bool>());
  }
  if (world.size() == 1) return;
  // If the first operation fails, the second one does not wait for ever, and the error is reported.
  comm::ReduceOptions options;
  const at::Tensor value = at::ones({world.rank() == 0 ? 3 : 4}, on(world, at::kFloat));
  if (first->shared_bytes(8).defined()) {
    options.after = first->all_reduce(value, true);
    const auto b = second->all_reduce(at::ones({2}, on(world, at::kFloat)), true, options);
    EXPECT_THROW(options.after->wait(), Error);
    EXPECT_THROW(b->wait(), Error);
    second->barrier();
  }
}

inline void check_orders(comm::Communicator& world) {
  check_any_order_across_groups(world, true);
  check_any_order_across_groups(world, false);
  check_pipeline_order(world);
  check_after(world);
}

}  // namespace tessera::testing
