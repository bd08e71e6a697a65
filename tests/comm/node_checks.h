// Checks of ranks that share a machine's memory, which run over the fake ranks and over MPI.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/comm/communicator.h"
#include "tessera/comm/host/node_group.h"
#include "tessera/core/error.h"

#include "tests/comm/collectives.h"

namespace tessera::testing {

// Two groups of the same ranks, one with shared memory and one without.
struct TwoPaths {
  std::shared_ptr<comm::Communicator> node, transport;
  explicit TwoPaths(comm::Communicator& world) {
    node = world.split(0, world.rank(), "by memory");
    transport = world.split(0, world.rank(), "by transport");
    transport->set_shared_memory(false);
  }
};

// Returns numbers of elements that are zero, small, odd, exactly a chunk, and more than the shared memory
// holds.
inline std::vector<int64_t> awkward_counts(int64_t num_ranks) {
  const int64_t chunk = comm::detail::NodeGroup::chunk_bytes(num_ranks) / 4;
  return {0, 1, 5, 1000, chunk, 2 * chunk + 17};
}

// Returns a number of elements of the type that is just more than a chunk.
inline int64_t longest_of(at::ScalarType type, int64_t num_ranks) {
  return comm::detail::NodeGroup::chunk_bytes(num_ranks) / static_cast<int64_t>(c10::elementSize(type)) + 1;
}

inline void check_paths_agree(comm::Communicator& world) {
  const TwoPaths paths(world);
  const int64_t n = world.size(), rank = world.rank();
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kLong}) {
    std::vector<int64_t> counts = awkward_counts(n);
    if (type != at::kFloat) counts = {0, 1, 1000, longest_of(type, n)};
    for (const int64_t count : counts) {
      SCOPED_TRACE(std::string(c10::toString(type)) + ", " + std::to_string(count) + " elements");
      std::vector<at::Tensor> results[2];
      for (const int path : {0, 1}) {
        comm::Communicator& group = path == 0 ? *paths.node : *paths.transport;
        const at::Tensor values = awkward_values(rank, count, type);
        const at::Tensor gathered = at::empty({n * count}, type);
        group.all_gather_single(gathered, values);
        results[path].push_back(gathered);

        const at::Tensor whole = awkward_values(rank, n * count, type);
        const at::Tensor piece = at::empty({count}, type);
        group.reduce_scatter_single(piece, whole);
        results[path].push_back(piece);
        // The reduction also works in place.
        const at::Tensor own = whole.narrow(0, rank * count, count);
        group.reduce_scatter_single(own, whole);
        results[path].push_back(own);

        for (const auto op : {comm::ReduceOp::Sum, comm::ReduceOp::Max, comm::ReduceOp::Min}) {
          const at::Tensor reduced = values.clone();
          group.all_reduce(reduced, false, {.op = op});
          results[path].push_back(reduced);
        }
        const at::Tensor sent = values.clone();
        group.broadcast(sent, n - 1);
        results[path].push_back(sent);
      }
      for (size_t i = 0; i < results[0].size(); ++i) {
        EXPECT_TRUE(at::equal(results[0][i], results[1][i])) << "result " << i;
      }
    }
  }
}

// Returns several ways to cut `numel` elements among `num_ranks` ranks: evenly, in steps of 5 of which the
// last ones are short or empty, with a different length for each rank, with everything for the last rank,
// and with parts that nobody or everybody gets.
inline std::vector<std::vector<comm::ElementRange>> cuts(int64_t numel, int64_t num_ranks) {
  std::vector<std::vector<comm::ElementRange>> all(5, std::vector<comm::ElementRange>(num_ranks));
  const int64_t even = numel / num_ranks, step = (numel / 5 + num_ranks - 1) / num_ranks * 5;
  int64_t begin = 0;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    all[0][rank] = {rank * even, even};
    const int64_t from = std::min(numel, rank * step);
    all[1][rank] = {from, std::min(numel, from + step) - from};
    const int64_t count = rank + 1 == num_ranks ? numel - begin : (numel - begin) * (rank % 3) / 3;
    all[2][rank] = {begin, count};
    begin += count;
    all[3][rank] = {0, rank + 1 == num_ranks ? numel : 0};
    all[4][rank] = {numel / 4, numel / 2};
  }
  return all;
}

// Compares reductions of several tensors by both paths. They are cut in several ways and of other types than
// the sum's, and this rank has no values for some.
inline void check_parts_agree(comm::Communicator& world) {
  const TwoPaths paths(world);
  const int64_t n = world.size(), rank = world.rank();
  const int64_t chunk = comm::detail::NodeGroup::chunk_bytes(n) / 4;
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    std::vector<at::Tensor> results[2];
    for (const int path : {0, 1}) {
      comm::Communicator& group = path == 0 ? *paths.node : *paths.transport;
      std::vector<comm::ScatterPart> parts;
      int number = 0;
      for (const int64_t numel : {int64_t{5}, int64_t{37}, int64_t{0}, 5 * n, 3 * chunk}) {
        for (const auto& pieces : cuts(numel, n)) {
          comm::ScatterPart part;
          part.pieces = pieces;
          const at::ScalarType input = number % 2 == 0 ? at::kFloat : at::kBFloat16;
          if (number % 9 != 3 || rank != 0) part.input = awkward_values(rank + number, numel, input);
          part.output = at::full({pieces[rank].count}, -7.0, at::TensorOptions().dtype(type));
          results[path].push_back(part.output);
          parts.push_back(std::move(part));
          ++number;
        }
      }
      group.reduce_scatter_parts(parts, type);
      group.reduce_scatter_parts({}, type);
    }
    for (size_t i = 0; i < results[0].size(); ++i) {
      EXPECT_TRUE(at::equal(results[0][i], results[1][i])) << c10::toString(type) << " part " << i;
      EXPECT_FALSE(results[0][i].eq(-7.0).any().item<bool>()) << "part " << i;
    }
  }
}

// Checks that a rank gets the sums over ranks of exactly those elements that the cut names.
inline void check_cuts(comm::Communicator& group) {
  const int64_t n = group.size(), rank = group.rank(), numel = 101;
  for (const auto& pieces : cuts(numel, n)) {
    comm::ScatterPart part;
    part.pieces = pieces;
    part.input = at::arange(numel, at::kDouble) + 1000.0 * static_cast<double>(rank);
    part.output = at::full({pieces[rank].count}, -7.0, at::kDouble);
    group.reduce_scatter_parts({part}, at::kDouble);
    const double ranks = 1000.0 * static_cast<double>(n * (n - 1) / 2);
    const at::Tensor want = at::arange(numel, at::kDouble) * static_cast<double>(n) + ranks;
    EXPECT_TRUE(at::equal(part.output, want.narrow(0, pieces[rank].begin, pieces[rank].count)));
    // A cut outside the input is refused, and so is an output of another length.
    part.pieces.back().begin += numel;
    EXPECT_THROW(group.reduce_scatter_parts({part}, at::kDouble), Error);
    part.pieces = pieces;
    part.output = at::empty({pieces[rank].count + 1}, at::kDouble);
    EXPECT_THROW(group.reduce_scatter_parts({part}, at::kDouble), Error);
  }
}

// Checks gathers of pieces with unrelated lengths.
inline void check_uneven_gathers(comm::Communicator& world) {
  const TwoPaths paths(world);
  const int64_t n = world.size(), rank = world.rank();
  const int64_t chunk = comm::detail::NodeGroup::chunk_bytes(n) / 4;
  for (const int64_t longest : {int64_t{0}, int64_t{1}, int64_t{100}, 2 * chunk + 17}) {
    SCOPED_TRACE("up to " + std::to_string(longest) + " elements");
    std::vector<int64_t> counts(n);
    std::vector<at::Tensor> pieces;
    for (int64_t r = 0; r < n; ++r) {
      counts[r] = r % 3 == 1 ? 0 : longest / (r + 1);
      pieces.push_back(awkward_values(r, counts[r], at::kFloat));
    }
    const at::Tensor want = at::cat(pieces);
    for (comm::Communicator* group : {paths.node.get(), paths.transport.get()}) {
      const at::Tensor output = at::full({want.numel()}, -7.0, at::kFloat);
      group->all_gather_v(output, pieces[rank], counts);
      EXPECT_TRUE(at::equal(output, want));
      // The gather also works in place.
      int64_t begin = 0;
      for (int64_t r = 0; r < rank; ++r) begin += counts[r];
      const at::Tensor own = output.fill_(-7.0).narrow(0, begin, counts[rank]);
      own.copy_(pieces[rank]);
      group->all_gather_v(output, own, counts, true)->wait();
      EXPECT_TRUE(at::equal(output, want));
    }
    EXPECT_THROW(world.all_gather_v(at::empty({want.numel() + 1}), pieces[rank], counts), Error);
    counts.push_back(0);
    EXPECT_THROW(world.all_gather_v(want, pieces[rank], counts), Error);
  }
}

// Checks exchanges of pieces with unrelated lengths.
inline void check_uneven_exchanges(comm::Communicator& world) {
  const TwoPaths paths(world);
  const int64_t n = world.size(), rank = world.rank();
  const int64_t chunk = comm::detail::NodeGroup::chunk_bytes(n) / 4;
  for (const int64_t longest : {int64_t{0}, int64_t{1}, int64_t{100}, 2 * chunk + 17}) {
    SCOPED_TRACE("up to " + std::to_string(longest) + " elements");
    // Rank a sends count(a, b) elements to rank b, each of the value value(a, b).
    const auto count = [&](int64_t a, int64_t b) { return (a + 2 * b) % 3 == 1 ? 0 : longest / (1 + a + b); };
    const auto value = [&](int64_t a, int64_t b) { return static_cast<double>(1 + 10 * a + b); };
    std::vector<int64_t> sent(n), taken(n);
    std::vector<at::Tensor> pieces, want;
    for (int64_t r = 0; r < n; ++r) {
      sent[r] = count(rank, r);
      taken[r] = count(r, rank);
      pieces.push_back(at::arange(sent[r], at::kFloat) + value(rank, r));
      want.push_back(at::arange(taken[r], at::kFloat) + value(r, rank));
    }
    for (comm::Communicator* group : {paths.node.get(), paths.transport.get()}) {
      const at::Tensor output = at::full({at::cat(want).numel()}, -7.0, at::kFloat);
      group->all_to_all_v(output, at::cat(pieces), taken, sent);
      EXPECT_TRUE(at::equal(output, at::cat(want)));
      // An exchange of even pieces gives the same as all_to_all_single().
      const at::Tensor even = awkward_values(rank, n * longest, at::kFloat);
      const at::Tensor a = at::empty_like(even), b = at::empty_like(even);
      group->all_to_all_single(a, even);
      const std::vector<int64_t> counts(n, longest);
      group->all_to_all_v(b, even, counts, counts, true)->wait();
      EXPECT_TRUE(at::equal(a, b));
      EXPECT_TRUE(
          at::equal(a.narrow(0, (n - 1) * longest, longest),
                    awkward_values(n - 1, n * longest, at::kFloat).narrow(0, rank * longest, longest)));
    }
    taken[0] += 1;
    EXPECT_THROW(world.all_to_all_v(at::cat(want), at::cat(pieces), taken, sent), Error);
  }
}

// Checks that all ranks get an error that names both ends, if a rank does not take what another one sends.
inline void check_exchange_mismatch(comm::Communicator& world) {
  const int64_t n = world.size(), rank = world.rank();
  if (n == 1) return;
  const TwoPaths paths(world);
  for (comm::Communicator* group : {paths.node.get(), paths.transport.get()}) {
    std::vector<int64_t> sent(n, 2), taken(n, 2);
    if (rank == 0) sent[n - 1] = 5;
    try {
      group->all_to_all_v(at::empty({2 * n}), at::ones({rank == 0 ? 2 * n + 3 : 2 * n}), taken, sent);
      ADD_FAILURE() << "the ranks' counts differ";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_EQ(error.kind(), ErrorKind::Peer);
      const std::string last = std::to_string(n - 1);
      EXPECT_NE(text.find("from rank 0 to rank " + last), std::string::npos) << text;
      EXPECT_NE(text.find("5 elements sent by rank 0, need 2, which rank " + last), std::string::npos)
          << text;
    }
  }
}

// Starts many operations on several groups and waits for them in another order.
inline void check_operations_in_flight(comm::Communicator& world) {
  const auto a = world.split(0, world.rank(), "a"), b = world.split(0, -world.rank(), "b");
  const int64_t n = world.size(), count = comm::detail::NodeGroup::chunk_bytes(n) / 8 + 3;
  std::vector<at::Tensor> values, gathered;
  std::vector<std::shared_ptr<comm::Work>> works;
  for (int i = 0; i < 12; ++i) {
    comm::Communicator& group = i % 2 == 0 ? *a : *b;
    values.push_back(at::full({count}, static_cast<double>(i + group.rank()), at::kDouble));
    gathered.push_back(at::empty({n * count}, at::kDouble));
    works.push_back(group.all_gather_single(gathered.back(), values.back(), true));
    works.push_back(group.all_reduce(values.back(), true));
    works.push_back(world.all_reduce(at::ones({3}), true));
  }
  for (size_t i = works.size(); i-- > 0;) works[i]->wait();
  for (int i = 0; i < 12; ++i) {
    for (int64_t r = 0; r < n; ++r) {
      EXPECT_EQ(gathered[i][r * count + count - 1].item<double>(), static_cast<double>(i + r));
    }
    const double sum = static_cast<double>(n * i + n * (n - 1) / 2);
    EXPECT_EQ(values[i][0].item<double>(), sum);
    EXPECT_EQ(values[i][count - 1].item<double>(), sum);
  }
}

// Checks, over and over, that the other ranks read what a rank writes into its part of the group's memory.
inline void check_shared_bytes(comm::Communicator& world) {
  constexpr int64_t kBytes = 10'000;
  const int64_t n = world.size(), rank = world.rank();
  const at::Tensor memory = world.shared_bytes(n * kBytes);
  if (n == 1) {
    EXPECT_FALSE(memory.defined());
    return;
  }
  ASSERT_TRUE(memory.defined());
  EXPECT_EQ(memory.numel(), n * kBytes);
  EXPECT_TRUE(memory.eq(0).all().item<bool>());
  world.barrier();  // all ranks have read
  for (int round = 1; round < 100; ++round) {
    auto work =
        world.write_shared(n * kBytes,
                           [memory, rank, round] {
                             std::memset(static_cast<char*>(memory.mutable_data_ptr()) + rank * kBytes,
                                         static_cast<int>((round + rank) % 251), kBytes);
                           },
                           true, {comm::hint("the test")});
    work->wait();
    for (int64_t r = 0; r < n; ++r) {
      EXPECT_TRUE(memory.narrow(0, r * kBytes, kBytes).eq((round + r) % 251).all().item<bool>()) << round;
    }
  }
}

// Checks that ranks which call different operations all get an error that says so, and that the group ends
// too.
inline void check_mismatches(comm::Communicator& world) {
  if (world.size() == 1) return;
  const bool is_last = world.rank() == world.size() - 1;
  const auto expect_mismatch = [&](comm::Communicator& group, const std::function<void()>& call) {
    try {
      call();
      ADD_FAILURE() << "the ranks' calls differ";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Peer);
      EXPECT_NE(std::string(error.what()).find("different collectives"), std::string::npos) << error.what();
    }
    EXPECT_THROW(group.barrier(), Error);
  };
  auto group = world.split(0, world.rank(), "sizes");
  expect_mismatch(*group, [&] {
    const at::Tensor value = at::ones({is_last ? 4 : 5});
    group->all_reduce(value);
  });
  group = world.split(0, world.rank(), "kinds");
  expect_mismatch(*group, [&] {
    const at::Tensor value = at::ones({4});
    if (is_last) {
      group->barrier();
    } else {
      group->broadcast(value, 0);
    }
  });
  group = world.split(0, world.rank(), "cuts");
  expect_mismatch(*group, [&] {
    const int64_t n = world.size();
    std::vector<int64_t> counts(n, 2);
    counts[0] += is_last ? 1 : 0;
    counts[1] += is_last ? 0 : 1;
    group->all_gather_v(at::empty({2 * n + 1}), at::ones({counts[world.rank()]}), counts);
  });
  group = world.split(0, world.rank(), "types");
  expect_mismatch(*group, [&] {
    const at::Tensor value = at::ones({4}, is_last ? at::kInt : at::kFloat);
    group->all_reduce(value);
  });
  // An error within an operation of one rank reaches the ranks that wait for it.
  group = world.split(0, world.rank(), "failing");
  const at::Tensor memory = group->shared_bytes(8);
  try {
    group->write_shared(8, [&] {
      if (is_last) throw Error(ErrorKind::Data, "TEST", "no such data");
    });
    ADD_FAILURE() << "a rank has failed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), is_last ? ErrorKind::Data : ErrorKind::Peer) << error.what();
  }
  EXPECT_THROW(group->barrier(), Error);
  world.barrier();
}

inline void check_node_collectives(comm::Communicator& world) {
  check_paths_agree(world);
  check_parts_agree(world);
  check_cuts(world);
  check_uneven_gathers(world);
  check_uneven_exchanges(world);
  check_exchange_mismatch(world);
  check_operations_in_flight(world);
  check_shared_bytes(world);
  check_mismatches(world);
}

}  // namespace tessera::testing
