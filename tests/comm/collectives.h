// Checks of the collectives that every transport must pass. They run over the fake ranks and over MPI.
#pragma once

#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/comm/communicator.h"

namespace tessera::testing {

// Returns the options of a tensor that the group takes.
inline at::TensorOptions on(const comm::Communicator& group, at::ScalarType type) {
  return at::TensorOptions(group.device()).dtype(type);
}

// Returns values that differ from rank to rank, and whose sum over ranks depends on the order of addition.
inline at::Tensor awkward_values(int64_t rank, int64_t count, at::ScalarType type) {
  // Thirds times powers of ten: every addition rounds.
  const at::Tensor index = at::arange(rank, rank + count, at::kFloat);
  return index.remainder_(977).div_(3).mul_(std::pow(10.0, static_cast<double>(rank % 4))).to(type);
}

inline at::Tensor numbered(const comm::Communicator& group, int64_t count,
                           at::ScalarType type = at::kDouble) {
  return (at::arange(count, on(group, at::kDouble)) + 100.0 * static_cast<double>(group.rank() + 1)).to(type);
}

inline void check_all_gather(comm::Communicator& group, int64_t count) {
  const at::Tensor input = numbered(group, count);
  const at::Tensor output = at::empty({group.size() * count}, on(group, at::kDouble));
  group.all_gather_single(output, input);
  for (int64_t r = 0; r < group.size(); ++r) {
    EXPECT_TRUE(at::equal(output.narrow(0, r * count, count),
                          at::arange(count, on(group, at::kDouble)) + 100.0 * (r + 1)));
  }
  // The gather also works in place.
  const at::Tensor own = output.narrow(0, group.rank() * count, count);
  group.all_gather_single(output, own);
  EXPECT_TRUE(
      at::equal(output.narrow(0, (group.size() - 1) * count, count),
                at::arange(count, on(group, at::kDouble)) + 100.0 * static_cast<double>(group.size())));
}

// Gathers several tensors at once, of different types and lengths, one of them in place.
inline void check_gather_of_parts(comm::Communicator& group) {
  const int64_t n = group.size(), rank = group.rank();
  std::vector<comm::GatherPart> parts;
  for (const int64_t length : {int64_t{0}, int64_t{3}, int64_t{5000}}) {
    for (const auto type : {at::kDouble, at::kLong}) {
      comm::GatherPart part;
      int64_t total = 0, begin = 0;
      for (int64_t r = 0; r < n; ++r) {
        if (r == rank) begin = total;
        part.counts.push_back(length + (length == 3 ? r : 0));
        total += part.counts.back();
      }
      part.output = at::full({total}, -1, on(group, type));
      part.input = part.output.narrow(0, begin, part.counts[static_cast<size_t>(rank)]);
      part.input.fill_(rank);
      if (type == at::kLong) part.input = part.input.clone();
      parts.push_back(std::move(part));
    }
  }
  group.all_gather_parts(parts);
  group.all_gather_parts({});
  for (const comm::GatherPart& part : parts) {
    int64_t begin = 0;
    for (int64_t r = 0; r < n; ++r) {
      const int64_t count = part.counts[static_cast<size_t>(r)];
      EXPECT_TRUE(part.output.narrow(0, begin, count).eq(r).all().item<bool>()) << r;
      begin += count;
    }
  }
}

inline void check_reductions(comm::Communicator& group, int64_t count, at::ScalarType type) {
  const int64_t n = group.size();
  const double rank_sum = 100.0 * static_cast<double>(n * (n + 1) / 2);
  at::Tensor reduced = numbered(group, count, type);
  group.all_reduce(reduced);
  const at::Tensor expected = (at::arange(count, on(group, at::kDouble)) * n + rank_sum).to(type);
  EXPECT_TRUE(at::allclose(reduced.to(at::kDouble), expected.to(at::kDouble), 1e-2, 0)) << count;

  at::Tensor largest = numbered(group, count, type);
  group.all_reduce(largest, false, {.op = comm::ReduceOp::Max});
  EXPECT_TRUE(at::allclose(largest.to(at::kDouble),
                           (at::arange(count, on(group, at::kDouble)) + 100.0 * n).to(type).to(at::kDouble)));

  // reduce_scatter followed by all_gather is all_reduce, to the bit.
  const at::Tensor whole = numbered(group, count * n, type);
  const at::Tensor piece = at::empty({count}, on(group, type)),
                   gathered = at::empty({count * n}, on(group, type));
  auto work = group.reduce_scatter_single(piece, whole, true);
  work->wait();
  group.all_gather_single(gathered, piece);
  group.all_reduce(whole);
  EXPECT_TRUE(at::equal(gathered, whole));
}

inline void check_all_to_all(comm::Communicator& group) {
  const int64_t n = group.size();
  const at::Tensor input = at::arange(n * 2, on(group, at::kLong)) + 1000 * group.rank();
  const at::Tensor output = at::empty_like(input);
  group.all_to_all_single(output, input);
  for (int64_t r = 0; r < n; ++r) {
    EXPECT_EQ(output[2 * r].item<int64_t>(), 1000 * r + 2 * group.rank());
  }
}

inline void check_broadcast_and_strings(comm::Communicator& group) {
  const int64_t root = group.size() - 1;
  const at::Tensor data = at::full({5}, group.rank(), on(group, at::kLong));
  group.broadcast(data, root);
  EXPECT_TRUE(at::equal(data, at::full({5}, root, on(group, at::kLong))));
  const auto texts = group.all_gather_string(std::string(static_cast<size_t>(group.rank()), 'x'));
  for (int64_t r = 0; r < group.size(); ++r) EXPECT_EQ(texts[r], std::string(static_cast<size_t>(r), 'x'));
  group.barrier();
}

inline void check_send_and_recv(comm::Communicator& group) {
  if (group.size() == 1) return;
  const at::Tensor token = at::zeros({3}, on(group, at::kLong));
  if (group.rank() == 0) {
    group.send(at::full({3}, 7, on(group, at::kLong)), 1, 5);
    group.recv(token, group.size() - 1, 5);
    EXPECT_EQ(token[0].item<int64_t>(), 7 + group.size() - 1);
  } else {
    group.recv(token, group.rank() - 1, 5);
    group.send(token + 1, (group.rank() + 1) % group.size(), 5);
  }
}

inline void check_split(comm::Communicator& group) {
  // Splits the group into odd and even ranks, in reverse order.
  auto part = group.split(group.rank() % 2, -group.rank(), "parity");
  const int64_t members = (group.size() + 1 - group.rank() % 2) / 2;
  EXPECT_EQ(part->size(), members);
  const at::Tensor sum = at::full({1}, group.rank(), on(group, at::kLong));
  part->all_reduce(sum);
  int64_t expected = 0;
  for (int64_t r = group.rank() % 2; r < group.size(); r += 2) expected += r;
  EXPECT_EQ(sum.item<int64_t>(), expected);
  const at::Tensor ranks = at::empty({members}, on(group, at::kLong));
  part->all_gather_single(ranks, at::full({1}, group.rank(), on(group, at::kLong)));
  for (int64_t i = 1; i < members; ++i) EXPECT_LT(ranks[i].item<int64_t>(), ranks[i - 1].item<int64_t>());
}

inline void check_all_collectives(comm::Communicator& group) {
  for (const int64_t count : {1, 7, 1000}) check_all_gather(group, count);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const int64_t count : {1, 5, 60000}) check_reductions(group, count, type);
  }
  check_gather_of_parts(group);
  check_all_to_all(group);
  check_broadcast_and_strings(group);
  check_send_and_recv(group);
  check_split(group);
}

}  // namespace tessera::testing
