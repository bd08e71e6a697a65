// Checks of messages between ranks, which run over the fake ranks and over MPI.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/comm/communicator.h"
#include "tessera/core/error.h"

#include "tests/comm/collectives.h"

namespace tessera::testing {

// Returns the text of the error that `call` throws; "" if it throws none.
template <class F>
std::string error_of(F call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Lets all ranks send to the next one and receive from the one before at once, far more bytes than a
// transport buffers.
inline void check_ring(comm::Communicator& group, int64_t count) {
  const int64_t n = group.size(), rank = group.rank(), before = (rank + n - 1) % n;
  const at::Tensor own = at::arange(count, on(group, at::kFloat)).add_(static_cast<double>(rank));
  const at::Tensor arrived = at::full({count}, -1.0, on(group, at::kFloat));
  group.batch_p2p({comm::isend(own, (rank + 1) % n), comm::irecv(arrived, before)});
  EXPECT_TRUE(at::equal(arrived, at::arange(count, on(group, at::kFloat)).add_(static_cast<double>(before))))
      << count;
}

// Sends the ring as single messages; each rank starts both of its messages before it waits for either.
inline void check_ring_of_single_messages(comm::Communicator& group, int64_t count) {
  const int64_t n = group.size(), rank = group.rank(), before = (rank + n - 1) % n;
  const at::Tensor own = at::full({count}, static_cast<double>(rank), on(group, at::kFloat));
  const at::Tensor arrived = at::full({count}, -1.0, on(group, at::kFloat));
  std::shared_ptr<comm::Work> sent, received;
  if (rank % 2 == 0) {
    received = group.recv(arrived, before, 4, true);
    sent = group.send(own, (rank + 1) % n, 4, true);
  } else {
    sent = group.send(own, (rank + 1) % n, 4, true);
    received = group.recv(arrived, before, 4, true);
  }
  group.barrier();  // collectives do not wait for messages
  received->wait();
  sent->wait();
  EXPECT_EQ(arrived[0].item<float>(), static_cast<float>(before));
  EXPECT_EQ(arrived[-1].item<float>(), static_cast<float>(before));
}

// Lets every rank send to every rank, itself included, with several tags and sizes. Receives are issued in
// another order than sends.
inline void check_everyone_to_everyone(comm::Communicator& group) {
  const int64_t n = group.size(), rank = group.rank();
  const std::vector<int64_t> counts = {0, 1, 1000, 300'000};
  const auto value = [&](int64_t source, int64_t target, size_t tag) {
    return static_cast<double>(100 * source + 10 * target + static_cast<int64_t>(tag));
  };
  std::vector<comm::P2pOp> ops;
  std::vector<at::Tensor> arrived;
  std::vector<double> want;
  for (size_t tag = 0; tag < counts.size(); ++tag) {
    for (int64_t peer = 0; peer < n; ++peer) {
      ops.push_back(comm::isend(at::full({counts[tag]}, value(rank, peer, tag), on(group, at::kDouble)), peer,
                                static_cast<int>(tag)));
    }
  }
  for (size_t tag = counts.size(); tag-- > 0;) {
    for (int64_t peer = n; peer-- > 0;) {
      arrived.push_back(at::full({counts[tag]}, -1.0, on(group, at::kDouble)));
      want.push_back(value(peer, rank, tag));
      ops.push_back(comm::irecv(arrived.back(), peer, static_cast<int>(tag)));
    }
  }
  group.batch_p2p(ops);
  for (size_t i = 0; i < arrived.size(); ++i) EXPECT_TRUE(arrived[i].eq(want[i]).all().item<bool>()) << i;
}

// Messages with the same ends and tag arrive in the order in which they were issued, over batches too; those
// of other tags pass them.
inline void check_message_order(comm::Communicator& group) {
  const int64_t n = group.size(), rank = group.rank(), next = (rank + 1) % n, before = (rank + n - 1) % n;
  constexpr int kMessages = 20;
  const auto count = [](int i) { return i % 3 == 0 ? int64_t{70'000} : int64_t{3}; };
  std::vector<at::Tensor> arrived;
  std::vector<std::shared_ptr<comm::Work>> works;
  const at::Tensor last = at::zeros({1}, on(group, at::kInt));
  works.push_back(group.recv(last, before, 9, true));
  for (int i = 0; i < kMessages; ++i) {
    arrived.push_back(at::full({count(i)}, -1, on(group, at::kInt)));
    works.push_back(group.recv(arrived.back(), before, 2, true));
  }
  for (int i = 0; i < kMessages; ++i)
    works.push_back(group.send(at::full({count(i)}, i, on(group, at::kInt)), next, 2, true));
  works.push_back(group.send(at::full({1}, 99, on(group, at::kInt)), next, 9, true));
  for (const auto& work : works) work->wait();
  EXPECT_EQ(last.item<int>(), 99);
  for (int i = 0; i < kMessages; ++i) EXPECT_TRUE(arrived[i].eq(i).all().item<bool>()) << i;
}

inline void check_message_errors(comm::Communicator& group) {
  const int64_t n = group.size(), rank = group.rank(), last = n - 1;
  const at::Tensor x = at::zeros({4}, on(group, at::kFloat));
  EXPECT_NE(error_of([&] { group.send(x, n); }), "");
  EXPECT_NE(error_of([&] { group.recv(x, -1); }), "");
  EXPECT_NE(error_of([&] { group.recv(x, 0, comm::P2pOp::kTagLimit); }), "");
  EXPECT_NE(error_of([&] { group.send(x, 0, -1); }), "");
  group.batch_p2p({});
  if (n == 1) return;
  // A message that is too short or too long is an error of the receiver, and the group goes on.
  for (const int64_t count : {int64_t{0}, int64_t{3}, int64_t{300'000}}) {
    if (rank == 0) {
      const at::Tensor buffer = at::full({5}, -1.0, on(group, at::kFloat));
      const std::string error =
          error_of([&] { group.recv(buffer, last, 6, false, {comm::hint("stage 1")}); });
      const std::string tail = " -> 0 tag 6 (" + std::to_string(4 * count) + " bytes)";
      EXPECT_NE(error.find("send " + std::to_string(last) + tail), std::string::npos) << error;
      EXPECT_NE(error.find("recv 0 <- " + std::to_string(last) + " tag 6 (20 bytes)"), std::string::npos)
          << error;
      EXPECT_NE(error.find("stage 1"), std::string::npos) << error;
      EXPECT_TRUE(buffer.eq(-1.0).all().item<bool>());
    } else if (rank == last) {
      error_of([&] {
        group.send(at::ones({count}, on(group, at::kFloat)), 0, 6);
      });  // the sender may get an error too, or not
    }
  }
  group.barrier();
  check_ring(group, 1000);
  // The error names the message that hangs, with both its ends, and not the one that has arrived.
  const at::Tensor a = at::zeros({2}, on(group, at::kInt)), b = at::zeros({2}, on(group, at::kInt));
  if (rank == 0) {
    const std::string error = error_of([&] {
      group.batch_p2p({comm::irecv(a, last, 7), comm::irecv(b, last, 8)}, false,
                      {{std::chrono::milliseconds(500), "activations of stage 0"}});
    });
    EXPECT_NE(error.find("E-HANG-TIMEOUT"), std::string::npos) << error;
    EXPECT_NE(error.find("recv 0 <- " + std::to_string(last) + " tag 8 (8 bytes)"), std::string::npos)
        << error;
    EXPECT_EQ(error.find("tag 7"), std::string::npos) << error;
    EXPECT_NE(error.find("activations of stage 0"), std::string::npos) << error;
    group.barrier();
  } else {
    if (rank == last) group.send(at::ones({2}, on(group, at::kInt)), 0, 7);
    group.barrier();
    if (rank == last) group.send(at::ones({2}, on(group, at::kInt)), 0, 8);  // lets the other receive end
  }
  group.barrier();
}

inline void check_messages(comm::Communicator& group) {
  for (const int64_t count : {0, 1, 1000, 16'000'000}) check_ring(group, count);
  if (group.size() > 1) check_ring_of_single_messages(group, 1'000'000);
  check_everyone_to_everyone(group);
  check_message_order(group);
  check_message_errors(group);
}

}  // namespace tessera::testing
