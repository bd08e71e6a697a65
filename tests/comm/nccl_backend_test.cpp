// Tests of the backend over NCCL, with a stub of NCCL that moves the data between ranks that are threads,
// and a device whose streams run late.
#include "tessera/comm/nccl/nccl_backend.h"

#include <array>
#include <latch>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <gtest/gtest.h>

#include "tessera/comm/fake/fake_backend.h"
#include "tessera/comm/flight_recorder.h"
#include "tessera/core/error.h"

#include "tests/comm/collectives.h"
#include "tests/comm/message_checks.h"
#include "tests/comm/nccl/nccl_ranks.h"
#include "tests/comm/order_checks.h"

namespace tessera::comm {
namespace {

using testing::on;

void run_nccl_ranks(int64_t size, const std::function<void(Communicator&)>& body,
                    const testing::NcclRun& run = {}) {
  testing::run_nccl_ranks(
      size, [&](const auto& group) { body(*group); }, run);
}

int64_t calls_of(const char* function) { return testing::stub().num_calls(function); }

class NcclBackendTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { testing::use_delays(1); }
  void TearDown() override {
    testing::fake_device::synchronize();
    EXPECT_STREQ(testing::stub().faults(), "");
    EXPECT_EQ(testing::fake_device::fault(), "");
  }
};

INSTANTIATE_TEST_SUITE_P(np, NcclBackendTest, ::testing::Values(2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param); });

TEST_P(NcclBackendTest, CollectivesAreRight) {
  const int num_aborts = testing::stub().num_calls("ncclCommAbort");
  run_nccl_ranks(GetParam(), [](Communicator& group) {
    EXPECT_EQ(group.backend_name(), "nccl");
    EXPECT_EQ(group.device(), testing::fake_device::device(group.rank()));
    EXPECT_FALSE(group.shared_bytes(8).defined());
    testing::check_all_collectives(group);
  });
  EXPECT_GT(testing::stub().num_calls("ncclSend"), 0);
  EXPECT_GT(testing::stub().num_calls("ncclAllGather"), 0);
  EXPECT_EQ(testing::stub().num_calls("ncclCommAbort"), num_aborts);
}

TEST_P(NcclBackendTest, MessagesArriveWhateverTheirSizeAndOrder) {
  run_nccl_ranks(GetParam(), [](Communicator& group) { testing::check_messages(group); });
}

TEST_P(NcclBackendTest, OrdersAcrossGroupsAreFree) {
  run_nccl_ranks(GetParam(), [](Communicator& group) { testing::check_orders(group); });
}

// A thread that uses a device without making it the current one would make CUDA create a context on another
// device. The watchdog and the threads that send messages might do so.
TEST_P(NcclBackendTest, NoThreadCallsForADeviceWithoutHavingSaidSo) {
  const int64_t before = testing::fake_device::strays();
  run_nccl_ranks(GetParam(), [](Communicator& group) {
    testing::check_messages(group);
    for (int round = 0; round < 5; ++round) {
      const at::Tensor value = at::ones({1000}, on(group, at::kFloat));
      group.all_reduce(value, true)->wait();
    }
  });
  testing::fake_device::synchronize();
  EXPECT_EQ(testing::fake_device::strays(), before);
}

// After a hang has been noted, a group that ends does not wait long for threads that are still in an
// operation.
TEST_P(NcclBackendTest, AGroupMayGoWhileAMessageStarts) {
  flight::note_hang("the test");
  for (int round = 0; round < 10; ++round) {
    run_nccl_ranks(GetParam(), [](Communicator& group) {
      const at::Tensor value = at::ones({4}, on(group, at::kFloat));
      const int64_t next = (group.rank() + 1) % group.size();
      const int64_t before = (group.rank() + group.size() - 1) % group.size();
      const auto received = group.recv(value.clone(), before, 0, true);
      group.send(value, next);
      group.barrier();
    });
  }
}

// Numbers of NCCL's calls that one gather of several tensors takes. Each pair of `tensors` is {elements of
// float64 that rank 0 has, how many fewer all other ranks have}.
struct GatherCalls {
  int64_t gathers = 0, broadcasts = 0;  // calls of each rank
};
GatherCalls calls_of_gather(int64_t ranks, const std::vector<std::pair<int64_t, int64_t>>& tensors) {
  const GatherCalls before{calls_of("ncclAllGather"), calls_of("ncclBroadcast")};
  run_nccl_ranks(ranks, [&](Communicator& group) {
    std::vector<GatherPart> parts;
    double number = 1.0;
    for (const auto& [count, less] : tensors) {
      GatherPart part;
      part.counts.assign(static_cast<size_t>(ranks), count - less);
      part.counts[0] = count;
      const int64_t whole = count + (ranks - 1) * (count - less);
      part.output = at::full({whole}, -1.0, on(group, at::kDouble));
      const int64_t begin = group.rank() == 0 ? 0 : count + (group.rank() - 1) * (count - less);
      // Every other piece is gathered in place.
      const at::Tensor own = part.output.narrow(0, begin, part.counts[static_cast<size_t>(group.rank())]);
      part.input = parts.size() % 2 == 0 ? own : at::empty_like(own);
      part.input.fill_(number++ + 100.0 * static_cast<double>(group.rank()));
      parts.push_back(part);
    }
    group.all_gather_parts(parts);
    number = 1.0;
    for (const GatherPart& part : parts) {
      int64_t begin = 0;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const int64_t count = part.counts[static_cast<size_t>(rank)];
        EXPECT_TRUE(part.output.narrow(0, begin, count)
                        .eq(number + 100.0 * static_cast<double>(rank))
                        .all()
                        .item<bool>());
        begin += count;
      }
      ++number;
    }
  });
  return {(calls_of("ncclAllGather") - before.gathers) / ranks,
          (calls_of("ncclBroadcast") - before.broadcasts) / ranks};
}

// See [Note: padded gathers].
TEST_P(NcclBackendTest, PiecesOfNearlyOneLengthAreOneGather) {
  const int64_t n = GetParam();
  const auto expect = [&](const std::vector<std::pair<int64_t, int64_t>>& tensors, int64_t gathers,
                          int64_t broadcasts) {
    const GatherCalls calls = calls_of_gather(n, tensors);
    EXPECT_EQ(calls.gathers, gathers) << tensors.size();
    EXPECT_EQ(calls.broadcasts, broadcasts) << tensors.size();
  };
  expect({{1000, 0}, {1000, 0}}, 2, 0);
  // The three uneven tensors go in one padded gather, beside the gather of the even one.
  expect({{1000, 1}, {70'001, 9}, {64, 0}, {3, 2}}, 2, 0);
  // Two or three broadcasts cost no more than a gather and two copies.
  expect({{1000, 1}}, n <= 3 ? 0 : 1, n <= 3 ? n : 0);
  // Broadcasts are used for more than 4 MiB, and if padding takes more than an eighth and 64 KiB.
  expect({{600'000, 1}, {600'000, 1}}, 0, 2 * n);
  expect({{40'000, 20'000}, {40'000, 20'000}}, 0, 2 * n);
}

TEST_P(NcclBackendTest, RegisteredMemoryIsFreedWhenNothingUsesIt) {
  const int64_t n = GetParam();
  const auto open = [] { return calls_of("ncclMemAlloc") - calls_of("ncclMemFree"); };
  const auto registered = [] { return calls_of("ncclCommRegister") - calls_of("ncclCommDeregister"); };
  const int64_t open_before = open(), registered_before = registered(),
                freed_before = calls_of("ncclMemFree");
  std::vector<at::Tensor> kept(static_cast<size_t>(n));
  run_nccl_ranks(n, [&](Communicator& group) {
    at::Tensor& last = kept[static_cast<size_t>(group.rank())];
    std::vector<std::shared_ptr<Work>> works;
    for (int round = 0; round < 20; ++round) {
      // Drops the memory of the round before, whose gather is still in flight, and which has no other owner.
      last = at::Tensor();
      last = group.registered_bytes(n * 800);
      ASSERT_TRUE(last.defined());
      EXPECT_EQ(last.device(), group.device());
      const at::Tensor whole = last.view(at::kDouble), own = whole.narrow(0, group.rank() * 100, 100);
      own.fill_(round + 1000.0 * static_cast<double>(group.rank()));
      works.push_back(group.all_gather_single(whole, own, true));
      if (round % 3 != 0) continue;
      works.back()->wait();
      const at::Tensor got = whole.to(kHost);
      for (int64_t rank = 0; rank < n; ++rank)
        EXPECT_EQ(got[rank * 100 + 99].item<double>(), round + 1000.0 * static_cast<double>(rank));
    }
    // After a hang, groups go without waiting for what is in flight.
    for (const auto& work : works) work->wait_host();
  });
  EXPECT_GE(calls_of("ncclMemFree") - freed_before, 19 * n);
  EXPECT_EQ(registered(), registered_before);
  EXPECT_EQ(open(), open_before + n);
  for (const at::Tensor& tensor : kept)
    EXPECT_EQ(tensor.view(at::kDouble).narrow(0, 0, 100).sum().item<double>(), 1900.0);
  kept.clear();
  EXPECT_EQ(open(), open_before);
}

TEST_P(NcclBackendTest, MemoryIsRegisteredOnAllRanksOrNone) {
  const int64_t allocated = calls_of("ncclMemAlloc"), freed = calls_of("ncclMemFree");
  testing::stub().set_unregistered(1);
  run_nccl_ranks(GetParam(),
                 [](Communicator& group) { EXPECT_FALSE(group.registered_bytes(640).defined()); });
  testing::stub().set_unregistered(-1);
  EXPECT_GT(calls_of("ncclMemAlloc"), allocated);
  EXPECT_EQ(calls_of("ncclMemFree") - freed, calls_of("ncclMemAlloc") - allocated);
  run_fake_ranks(GetParam(), [](const auto& group) { EXPECT_FALSE(group->registered_bytes(640).defined()); });
}

TEST_P(NcclBackendTest, AnAbortEndsRegistrations) {
  run_nccl_ranks(GetParam(), [](Communicator& group) {
    at::Tensor slot = group.registered_bytes(group.size() * 800);
    if (group.rank() != 0) return;
    const at::Tensor whole = slot.view(at::kDouble);
    const auto work = group.all_gather_single(whole, whole.narrow(0, 0, 100), true,
                                              {{std::chrono::milliseconds(300), "the test"}});
    EXPECT_NE(testing::error_of([&] { work->wait_host(); }).find("E-HANG-TIMEOUT"), std::string::npos);
    slot = at::Tensor();
  });
}

// The watchdog drops tensors after it has aborted one group, and must not wait then: it may have to abort
// others.
TEST(RegisteredMemoryTest, NobodyWaitsBehindAnAbort) {
  namespace fake = testing::fake_device;
  testing::use_delays(1);
  testing::stub();
  const auto library = testing::stub_library();
  const detail::NcclHandle comm = library->init_rank(library->make_id(), 1, 0);
  std::optional<detail::RegisteredMemory> memory(std::in_place, fake::device(0), library, comm);
  at::Tensor tensor = memory->make(640);
  ASSERT_TRUE(tensor.defined());
  library->abort(comm);
  memory->forget();
  const int64_t waits = fake::waits(), freed = calls_of("ncclMemFree");
  tensor.reset();
  EXPECT_EQ(fake::waits(), waits);
  memory.reset();
  EXPECT_EQ(calls_of("ncclMemFree"), freed + 1);
  EXPECT_STREQ(testing::stub().faults(), "");
}

TEST_P(NcclBackendTest, AnOlderLibraryRegistersNothing) {
  run_nccl_ranks(GetParam(),
                 [](Communicator& group) {
                   EXPECT_FALSE(group.registered_bytes(640).defined());
                   const at::Tensor value = at::ones({4}, on(group, at::kFloat));
                   group.all_reduce(value);
                   EXPECT_EQ(value.sum().item<float>(), 4.0f * static_cast<float>(group.size()));
                 },
                 {.library = TESSERA_STUB_NCCL_OLD});
  EXPECT_STREQ(testing::stub_at(TESSERA_STUB_NCCL_OLD).faults(), "");
}

// Returns the results of every operation, for uneven pieces and values whose sums depend on the order.
std::vector<at::Tensor> results_of(Communicator& group) {
  const int64_t n = group.size(), rank = group.rank();
  std::vector<at::Tensor> results;
  const auto values = [&](int64_t count, at::ScalarType type) {
    return testing::awkward_values(rank, count, type).to(group.device());
  };
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kLong}) {
    for (const int64_t count : {1, 37, 1000, 70'000}) {
      for (const auto op : {ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min}) {
        results.push_back(values(count, type));
        group.all_reduce(results.back(), false, {.op = op});
      }
      std::vector<int64_t> counts;
      int64_t total = 0;
      for (int64_t r = 0; r < n; ++r) {
        counts.push_back(r % 3 == 1 ? 0 : count + r);
        total += counts.back();
      }
      results.push_back(at::empty({total}, on(group, type)));
      group.all_gather_v(results.back(), values(counts[static_cast<size_t>(rank)], type), counts);
    }
  }
  // Reduces several tensors, of other types than the sum's and cut in several ways. This rank has no values
  // for some of them.
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    std::vector<ScatterPart> parts;
    for (const int64_t numel : {int64_t{0}, int64_t{5}, int64_t{37}, 5 * n, int64_t{40'000}}) {
      for (int cut = 0; cut < 4; ++cut) {
        ScatterPart part;
        int64_t begin = 0;
        for (int64_t r = 0; r < n; ++r) {
          int64_t size = cut == 0   ? (numel - begin) / (n - r)
                         : cut == 1 ? (r + 1 == n ? numel - begin : 0)
                                    : (numel - begin) / 3;
          if (cut == 3) begin = numel / 4, size = numel / 2;
          part.pieces.push_back({begin, size});
          begin += size;
        }
        if (cut != 2 || rank != 0) part.input = values(numel, cut % 2 == 0 ? at::kFloat : at::kBFloat16);
        part.output = at::full({part.pieces[static_cast<size_t>(rank)].count}, -7.0, on(group, type));
        results.push_back(part.output);
        parts.push_back(std::move(part));
      }
    }
    group.reduce_scatter_parts(parts, type);
    group.reduce_scatter_parts({}, type);
  }
  std::vector<int64_t> to, from;
  for (int64_t r = 0; r < n; ++r) {
    to.push_back(7 * rank + r);
    from.push_back(7 * r + rank);
  }
  const auto sum = [](const std::vector<int64_t>& all) {
    int64_t total = 0;
    for (const int64_t one : all) total += one;
    return total;
  };
  results.push_back(at::empty({sum(from)}, on(group, at::kInt)));
  group.all_to_all_v(results.back(), values(sum(to), at::kInt), from, to);
  results.push_back(values(1001, at::kHalf));
  group.broadcast(results.back(), n - 1);
  for (at::Tensor& result : results) result = result.to(kHost);
  return results;
}

TEST_P(NcclBackendTest, GivesTheHostsBits) {
  const int64_t n = GetParam();
  std::vector<std::vector<at::Tensor>> expected(static_cast<size_t>(n)), got(static_cast<size_t>(n));
  run_fake_ranks(
      n, [&](const auto& group) { expected[static_cast<size_t>(group->rank())] = results_of(*group); });
  for (const uint64_t seed : {1, 2, 3}) {
    testing::use_delays(seed);
    run_nccl_ranks(n,
                   [&](Communicator& group) { got[static_cast<size_t>(group.rank())] = results_of(group); });
    for (size_t rank = 0; rank < expected.size(); ++rank) {
      ASSERT_EQ(got[rank].size(), expected[rank].size());
      for (size_t i = 0; i < got[rank].size(); ++i) {
        EXPECT_TRUE(at::equal(got[rank][i], expected[rank][i]))
            << "seed " << seed << " rank " << rank << " result " << i;
      }
    }
  }
}

// Many operations are in flight at once, on memory that is freed and allocated anew meanwhile. They are
// waited for in another order.
TEST_P(NcclBackendTest, OperationsInFlightKeepTheirMemory) {
  for (const uint64_t seed : {11, 12, 13, 14}) {
    testing::use_delays(seed);
    run_nccl_ranks(GetParam(), [](Communicator& group) {
      const int64_t n = group.size();
      for (int round = 0; round < 20; ++round) {
        std::vector<at::Tensor> gathered;
        std::vector<std::shared_ptr<Work>> works;
        for (int i = 0; i < 3; ++i) {
          gathered.push_back(at::empty({n * 500}, on(group, at::kDouble)));
          // The input has no other owner.
          works.push_back(group.all_gather_single(
              gathered.back(), at::full({500}, round * 10.0 + i, on(group, at::kDouble)), true));
        }
        double total = 0;
        for (size_t i = works.size(); i-- > 0;) {
          works[i]->wait();
          const at::Tensor twice = gathered[i] * 2.0;
          gathered[i] = at::Tensor();
          const at::Tensor taken_anew = at::full({n * 500}, -1.0, on(group, at::kDouble));
          total += twice.sum().item<double>();
        }
        EXPECT_EQ(total, 2.0 * static_cast<double>(n) * 500 * (3 * round * 10.0 + 3));
      }
    });
  }
}

// Both kinds of events are needed: those that the stream of the group waits for, and those of wait().
TEST_P(NcclBackendTest, WithoutEventsResultsAreWrong) {
  for (const auto lost :
       {testing::fake_device::Lost::OfDefaultStreams, testing::fake_device::Lost::OfOtherStreams}) {
    int64_t num_wrong = 0;
    for (uint64_t seed = 1; seed <= 300 && num_wrong == 0; ++seed) {
      testing::use_delays(seed, lost);
      run_nccl_ranks(GetParam(), [&](Communicator& group) {
        const at::Tensor input = at::ones({1000}, on(group, at::kDouble)) * 3.0;
        const at::Tensor output = at::empty({group.size() * 1000}, on(group, at::kDouble));
        const auto work = group.all_gather_single(output, input);
        const bool is_wrong = !output.eq(3.0).all().item<bool>();
        if (group.rank() == 0 && is_wrong) ++num_wrong;
        work->wait_host();
      });
    }
    EXPECT_GT(num_wrong, 0);
    testing::use_delays(1);
  }
}

TEST_P(NcclBackendTest, TensorsOfTheHostGoByTheHost) {
  const int64_t before = calls_of("ncclAllGather");
  run_nccl_ranks(GetParam(), [](Communicator& group) {
    const at::Tensor value = at::ones({3});
    group.all_reduce(value);
    EXPECT_EQ(value[0].item<float>(), static_cast<float>(group.size()));
    group.batch_p2p({isend(value, (group.rank() + 1) % group.size()),
                     irecv(at::empty({3}), (group.rank() + group.size() - 1) % group.size())});
    const std::string error = testing::error_of([&] {
      group.batch_p2p({isend(value, 0), irecv(at::empty({3}, on(group, at::kFloat)), 0)});
    });
    EXPECT_NE(error.find("E-CONFIG-ARGUMENT"), std::string::npos) << error;
    EXPECT_NE(testing::error_of([&] { group.all_reduce(at::empty({2}, at::TensorOptions(at::kMeta))); }), "");
    group.barrier();
  });
  EXPECT_EQ(calls_of("ncclAllGather"), before);
}

// The error is thrown in the call itself, or by a wait on the host, later operations and check(). NCCL alone
// might hang, or report nothing.
TEST_P(NcclBackendTest, CountsThatDifferAreAnErrorOnEveryRank) {
  const int64_t n = GetParam();
  run_nccl_ranks(n, [&](Communicator& group) {
    const auto other = group.split(0, group.rank(), "other");
    const auto exchange = [&](bool differ, const char* hint) {
      std::vector<int64_t> to(static_cast<size_t>(n), 2), from = to;
      if (differ && group.rank() == 1) to[0] = 3;
      const int64_t sent = std::accumulate(to.begin(), to.end(), int64_t{0});
      return group.all_to_all_v(at::empty({2 * n}, on(group, at::kFloat)),
                                at::ones({sent}, on(group, at::kFloat)), from, to, true,
                                {{std::chrono::minutes(10), hint}});
    };
    const auto before = exchange(false, "the one before");
    const std::string error = testing::error_of([&] { exchange(true, "the test")->wait_host(); });
    EXPECT_NE(error.find("E-PEER-MISMATCH"), std::string::npos) << error;
    EXPECT_NE(error.find("all_to_all_v number 3 of group 'world' on rank " + std::to_string(group.rank()) +
                         " of " + std::to_string(n) + " (the test): "),
              std::string::npos)
        << error;
    EXPECT_NE(error.find("from rank 1 to rank 0"), std::string::npos) << error;
    EXPECT_NE(error.find("3 elements sent by rank 1, need 2, which rank 0 takes"), std::string::npos)
        << error;
    EXPECT_EQ(testing::error_of([&] { before->wait_host(); }), "");
    EXPECT_EQ(testing::error_of([&] { group.check(); }), error);
    EXPECT_EQ(testing::error_of([&] { exchange(false, "later"); }), error);
    EXPECT_EQ(testing::error_of([&] { other->all_reduce(at::ones({2}, on(group, at::kFloat))); }), error);
  });
  // The stub has seen the difference too, unless the ranks had ended before.
  testing::fake_device::synchronize();
  const std::string seen = testing::stub().faults();
  EXPECT_TRUE(seen.empty() || seen == "ranks 1 and 0: 12 sent, 8 received\n") << seen;
  testing::stub().forget_faults();
}

// The exchanges are started on one rank's thread after the other, as it happens when the backwards of all
// ranks share one device's thread.
TEST_P(NcclBackendTest, ExchangesWaitForNoOtherRank) {
  const int64_t n = GetParam();
  std::vector<std::unique_ptr<std::latch>> turns;
  for (int64_t rank = 0; rank <= n; ++rank) turns.push_back(std::make_unique<std::latch>(1));
  turns[0]->count_down();
  run_nccl_ranks(n, [&](Communicator& group) {
    const auto rank = static_cast<size_t>(group.rank());
    turns[rank]->wait();
    std::vector<at::Tensor> results;
    for (int round = 0; round < 3; ++round) {
      const at::Tensor input =
          at::full({3 * n}, round + 10.0 * static_cast<double>(rank), on(group, at::kFloat));
      results.push_back(at::empty_like(input));
      const std::vector<int64_t> even(static_cast<size_t>(n), 3);
      group.all_to_all_v(results.back(), input, even, even);
    }
    turns[rank + 1]->count_down();
    turns[static_cast<size_t>(n)]->wait();
    for (int round = 0; round < 3; ++round) {
      for (int64_t from = 0; from < n; ++from)
        EXPECT_EQ(results[static_cast<size_t>(round)][3 * from].item<float>(),
                  static_cast<float>(round + 10 * from));
    }
  });
}

// The calling rank does not wait on the host. The error is thrown when the result is read, and by every later
// operation.
TEST_P(NcclBackendTest, AMissingRankEndsInAHangErrorThatNamesTheOperation) {
  run_nccl_ranks(GetParam(), [](Communicator& group) {
    const auto other = group.split(0, group.rank(), "other");
    if (group.rank() == 0) {
      const at::Tensor value = at::ones({4}, on(group, at::kFloat));
      const auto work = group.all_reduce(value, true, {{std::chrono::milliseconds(300), "the test"}});
      const std::string error = testing::error_of([&] { work->wait_host(); });
      EXPECT_NE(error.find("E-HANG-TIMEOUT"), std::string::npos) << error;
      EXPECT_NE(error.find("all_reduce number 2 of group 'world' on rank 0 of " +
                           std::to_string(group.size()) + " (the test) did not finish"),
                std::string::npos)
          << error;
      EXPECT_EQ(testing::error_of([&] { group.check(); }), error);
      EXPECT_EQ(testing::error_of([&] { other->check(); }), error);
      EXPECT_EQ(testing::error_of([&] { group.all_reduce(value); }), error);
      EXPECT_EQ(testing::error_of([&] { other->all_gather_string("x"); }), error);
      EXPECT_EQ(testing::error_of([&] { group.barrier(); }), error);
      // The device's stream goes on.
      EXPECT_EQ((at::ones({2}, on(group, at::kFloat)) * 2).sum().item<float>(), 4.0f);
    }
  });
}

// A rank is missing at the start of the world, of a part of it, and of a message's own communicator.
TEST_P(NcclBackendTest, ARankThatDoesNotComeToTheStartEndsInAHangError) {
  const std::string of_ranks = " of " + std::to_string(GetParam());
  const auto is_hang = [](const std::string& error, const std::string& what) {
    EXPECT_NE(error.find("E-HANG-TIMEOUT"), std::string::npos) << error;
    EXPECT_NE(error.find(what), std::string::npos) << error;
    EXPECT_NE(error.find(" did not finish"), std::string::npos) << error;
  };
  testing::stub().set_missing(1);
  const std::string error = testing::error_of([&] {
    run_nccl_ranks(GetParam(), [](Communicator&) { FAIL() << "a rank is missing"; },
                   {.start_timeout = std::chrono::milliseconds(300)});
  });
  is_hang(error, "the start of NCCL on rank 0" + of_ranks);
  testing::stub().set_missing(-1);
  run_nccl_ranks(GetParam(), [&](Communicator& group) {
    // The timeout is long enough for the ranks that are there to talk over the host's group.
    group.set_default_timeout(std::chrono::milliseconds(1000));
    group.all_reduce(at::ones({4}, on(group, at::kFloat)), false, {{std::chrono::minutes(10), ""}});
    group.barrier({{std::chrono::minutes(10), ""}});
    testing::stub().set_missing(1);
    const std::string error = testing::error_of([&] { group.split(0, group.rank(), "part"); });
    if (group.rank() != 1) {
      is_hang(error, "split number 3 of group 'world' on rank " + std::to_string(group.rank()) + of_ranks);
    } else {
      EXPECT_NE(error.find("E-PEER-NCCL"), std::string::npos) << error;
    }
    const at::Tensor value = at::ones({4}, on(group, at::kFloat));
    if (group.rank() == 0) {
      is_hang(testing::error_of([&] { group.send(value, 1, 0, true, {hint("the test")})->wait_host(); }),
              "(the test)");
    } else if (group.rank() == 1) {
      const std::string error = testing::error_of([&] {
        group.recv(value, 0, 0, true, {{std::chrono::minutes(10), ""}})->wait_host();
      });
      EXPECT_NE(error.find("E-PEER-NCCL"), std::string::npos) << error;
    }
  });
  testing::stub().set_missing(-1);
}

// A call may hang in NCCL, which connects ranks in the first call that needs the connection.
TEST_P(NcclBackendTest, ACallThatDoesNotReturnEndsInAHangError) {
  run_nccl_ranks(GetParam(), [](Communicator& group) {
    if (group.rank() != 0) return;
    testing::stub().set_stuck(0);
    const std::string error = testing::error_of([&] {
      group.all_reduce(at::ones({4}, on(group, at::kFloat)), true,
                       {{std::chrono::milliseconds(300), "the test"}});
    });
    EXPECT_NE(error.find("E-HANG-TIMEOUT"), std::string::npos) << error;
    EXPECT_NE(error.find("(the test) did not finish"), std::string::npos) << error;
    EXPECT_EQ(testing::error_of([&] { group.check(); }), error);
    testing::stub().set_stuck(-1);
  });
}

// If an operation fails halfway, the work that it has put on the stream already is waited for, and its
// memory is kept until then.
TEST_P(NcclBackendTest, AnOperationThatFailsHalfwayIsWaitedFor) {
  const auto size = static_cast<size_t>(GetParam());
  testing::stub();
  const auto library = testing::stub_library();
  const detail::NcclId id = library->make_id();
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const c10::Device device = testing::fake_device::device(static_cast<int64_t>(rank));
      const c10::DeviceGuard guard(device);
      const detail::Call call{.description = "the test", .timeout = std::chrono::minutes(1)};
      detail::NcclGroup group({device, library, std::make_shared<detail::Watchdog>(device)}, id, GetParam(),
                              static_cast<int64_t>(rank), call);
      const at::Tensor whole = at::empty({100 * GetParam()}, at::TensorOptions(device));
      const at::Tensor own = at::ones({100}, at::TensorOptions(device));
      const std::vector<int64_t> bytes(size, 400);
      EXPECT_THROW(group.run(call, {whole, own},
                             [&] {
                               group.all_gather(whole.mutable_data_ptr(), own.const_data_ptr(), bytes);
                               throw std::runtime_error("halfway");
                             }),
                   std::runtime_error);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(NcclBackendTest, AnErrorOfNcclNamesTheOperation) {
  run_nccl_ranks(GetParam(), [](Communicator& group) {
    if (group.rank() == 0) {
      testing::stub().set_async_error(0, 6);
      const at::Tensor value = at::ones({4}, on(group, at::kFloat));
      // The error comes in the call, or in the wait.
      const std::string error =
          testing::error_of([&] { group.broadcast(value, 0, true, {hint("the test")})->wait_host(); });
      EXPECT_NE(error.find("E-PEER-NCCL"), std::string::npos) << error;
      EXPECT_NE(error.find("broadcast number 1 of group 'world' on rank 0"), std::string::npos) << error;
      EXPECT_NE(error.find("remote process exited: the stub says so"), std::string::npos) << error;
      EXPECT_NE(testing::error_of([&] { group.check(); }), "");
      testing::stub().set_async_error(0, 0);
    }
  });
}

// LibTorch throws on the watchdog's thread, where nobody else could catch it.
TEST_P(NcclBackendTest, ADeviceThatFailsEndsItsOperations) {
  testing::fake_device::configure({.seed = 1, .has_failed = true});
  run_nccl_ranks(GetParam(), [](Communicator& group) {
    const at::Tensor value = at::ones({4}, on(group, at::kFloat));
    const auto work = group.all_reduce(value, true);
    const std::string error = testing::error_of([&] { work->wait_host(); });
    EXPECT_NE(error.find("E-PEER-NCCL"), std::string::npos) << error;
    EXPECT_NE(error.find(" failed: the device has failed"), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    EXPECT_EQ(testing::error_of([&] { group.check(); }), error);
  });
}

// The tests above rely on these checks of the stub.
TEST(StubNcclTest, NoticesWhatNoRankMayDo) {
  testing::use_delays(1);
  testing::stub();
  const auto library = testing::stub_library();
  const auto stream_of = [](int64_t rank) {
    const c10::impl::VirtualGuardImpl guard(testing::fake_device::device(0).type());
    return guard.getStreamNativeHandle(guard.getDefaultStream(testing::fake_device::device(rank)));
  };
  const auto faults = [] {
    testing::fake_device::synchronize();
    std::string found = testing::stub().faults();
    testing::stub().forget_faults();
    return found;
  };
  std::array<char, 8> from = {}, to = {};
  const auto two_ranks = [&] {
    const detail::NcclId id = library->make_id();
    std::array<detail::NcclHandle, 2> comms{};
    std::thread other([&] { comms[1] = library->init_rank(id, 2, 1); });
    comms[0] = library->init_rank(id, 2, 0);
    other.join();
    return comms;
  };

  auto comms = two_ranks();
  library->send(from.data(), 8, 1, comms[0], stream_of(0));
  library->recv(to.data(), 4, 0, comms[1], stream_of(1));
  EXPECT_EQ(faults(), "ranks 0 and 1: 8 sent, 4 received\n");

  comms = two_ranks();
  library->all_gather(from.data(), to.data(), 4, comms[0], stream_of(0));
  library->all_gather(from.data(), to.data(), 3, comms[1], stream_of(1));
  EXPECT_NE(faults().find("collective 0 differs between ranks"), std::string::npos);

  comms = two_ranks();
  library->recv(to.data(), 4, 0, comms[0], stream_of(0));
  library->abort(comms[0]);
  EXPECT_EQ(faults(), "a message to itself has one end in its group\n");
  EXPECT_NE(testing::error_of([&] { library->recv(to.data(), 4, 1, comms[0], stream_of(0)); }), "");
  EXPECT_EQ(faults(), "ncclRecv after the end of its communicator\n");

  void* const memory = library->allocate(64);
  void* const registration = library->register_memory(comms[1], memory, 64);
  EXPECT_NE(testing::error_of([&] { library->register_memory(comms[1], memory, 64); }), "");
  EXPECT_EQ(faults(), "ncclCommRegister twice\n");
  EXPECT_NE(testing::error_of([&] { library->register_memory(comms[1], from.data(), 8); }), "");
  EXPECT_EQ(faults(), "ncclCommRegister of other memory\n");
  EXPECT_NE(testing::error_of([&] { library->destroy(comms[1]); }), "");
  EXPECT_EQ(faults(), "ncclCommDestroy with registered memory\n");
  library->free(memory);
  EXPECT_EQ(faults(), "ncclMemFree of registered memory\n");
  library->deregister(comms[1], registration);
  EXPECT_NE(testing::error_of([&] { library->deregister(comms[1], registration); }), "");
  EXPECT_EQ(faults(), "ncclCommDeregister twice\n");
  library->free(memory);
  EXPECT_EQ(faults(), "ncclMemFree of other memory\n");

  library->send(from.data(), 4, 0, comms[1], stream_of(1));
  EXPECT_NE(testing::error_of([&] { library->destroy(comms[1]); }), "");
  library->abort(comms[1]);
  EXPECT_EQ(faults(), "ncclCommDestroy with operations in flight\n");
}

TEST(NcclLibraryTest, OneLineWhereItCannotBeUsed) {
  testing::expect_others_refused<detail::NcclLibrary>("ncclGetVersion", TESSERA_STUB_NCCL_OLDER,
                                                      "2.17.3, not of 2.18.0 or a later 2");
  const std::string missing = testing::error_of([] { detail::NcclLibrary::require("/no/libnccl.so.2"); });
  EXPECT_NE(missing.find("E-CONFIG-NCCL"), std::string::npos) << missing;
  EXPECT_NE(missing.find("got /no/libnccl.so.2: cannot open"), std::string::npos) << missing;
  EXPECT_NE(missing.find("need /no/libnccl.so.2 of version 2.18"), std::string::npos) << missing;
  EXPECT_EQ(missing.find('\n'), std::string::npos);
  EXPECT_EQ(detail::NcclLibrary::require(TESSERA_STUB_NCCL)->version(), 22809U);
  EXPECT_EQ(detail::NcclLibrary::require(TESSERA_STUB_NCCL_OLD)->version(), 21805U);
}

}  // namespace
}  // namespace tessera::comm
