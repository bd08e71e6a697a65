#include "tessera/comm/traffic.h"

#include <chrono>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/comm/communicator.h"
#include "tessera/comm/fake/fake_backend.h"

namespace tessera::comm {
namespace {

at::Tensor floats(int64_t count) { return at::ones({count}, at::kFloat); }

TEST(TrafficTest, OfEveryOperationIsThatOfItsFormula) {
  for (const int64_t n : {2, 3, 4}) {
    run_fake_ranks(n, [n](const std::shared_ptr<Communicator>& world) {
      Traffic before;
      // Expects that the operation has sent this many bytes.
      const auto expect_sent = [&](int64_t bytes, const char* operation) {
        const Traffic now = world->traffic();
        EXPECT_EQ((now - before).bytes_sent, bytes) << operation << " on " << n << " ranks";
        before = now;
      };
      const int64_t piece = 5, whole = n * piece, rank = world->rank();
      const int64_t bytes = (n - 1) * piece * 4;  // (n - 1) / n of the bytes of n pieces of float32
      world->all_gather_single(floats(whole), floats(piece));
      expect_sent(bytes, "all_gather_single");
      world->reduce_scatter_single(floats(piece), floats(whole));
      expect_sent(bytes, "reduce_scatter_single");
      world->all_reduce(floats(whole));
      expect_sent(2 * bytes, "all_reduce");
      world->all_to_all_single(floats(whole), floats(whole));
      expect_sent(bytes, "all_to_all_single");
      world->broadcast(floats(whole), 0);
      expect_sent(bytes, "broadcast");
      // Uneven pieces: i + 1 elements for rank i, of which a rank keeps its own.
      std::vector<int64_t> counts, same(static_cast<size_t>(n), rank + 1);
      int64_t sum = 0;
      for (int64_t i = 0; i < n; ++i) counts.push_back(i + 1), sum += i + 1;
      world->all_to_all_v(floats(n * (rank + 1)), floats(sum), same, counts);
      expect_sent((sum - rank - 1) * 4, "all_to_all_v");
      world->batch_p2p({isend(floats(3), (rank + 1) % n), irecv(floats(3), (rank + n - 1) % n),
                        isend(floats(9), rank, 1), irecv(floats(9), rank, 1)});
      expect_sent(12, "batch_p2p");
      world->barrier();
      world->all_gather_string("text");
      expect_sent(0, "barriers and strings");
    });
  }
}

TEST(TrafficTest, OfOneRankIsNothing) {
  const auto single = Communicator::single();
  single->all_reduce(floats(8));
  EXPECT_EQ(single->traffic().bytes_sent, 0);
  EXPECT_EQ(single->traffic().wait_s, 0.0);
}

TEST(TrafficTest, WaitsAreThoseOfTheCaller) {
  run_fake_ranks(2, [](const std::shared_ptr<Communicator>& world) {
    constexpr std::chrono::milliseconds kLate{50};
    if (world->rank() == 1) std::this_thread::sleep_for(kLate);
    const auto begin = std::chrono::steady_clock::now();
    const at::Tensor tensor = floats(8);
    const auto work = world->all_reduce(tensor, /*async_op=*/true);
    EXPECT_EQ(world->traffic().wait_s, 0.0);
    // The second operation waits for the first one, which is no wait of the caller.
    const auto next = world->all_reduce(tensor, true, {hint("", work), ReduceOp::Sum});
    next->wait();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    EXPECT_GT(world->traffic().wait_s, 0.0);
    EXPECT_LE(world->traffic().wait_s, passed.count());
    EXPECT_EQ(tensor[0].item<float>(), 4.0F);
  });
}

}  // namespace
}  // namespace tessera::comm
