// Tests Communicator over a second kind of backend, which works on tensors as they are: without bytes,
// without an executor, and on any device.
#include "tessera/comm/tensor_backend.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/comm/communicator.h"
#include "tessera/comm/done_work.h"
#include "tessera/comm/mailbox.h"
#include "tessera/core/error.h"

#include "tests/comm/collectives.h"
#include "tests/comm/message_checks.h"

namespace tessera::comm {
namespace {

// The arguments of one rank in an operation.
struct Brought {
  at::Tensor output, input;
  std::vector<ScatterPart> parts;
  std::vector<int64_t> numbers;
  std::vector<GatherPart> gathered = {};
};

// The place to which the ranks, threads of one process, bring their tensors. The last one to come does the
// work of all.
struct Table {
  explicit Table(int64_t num_ranks) : brought(num_ranks) {}

  void meet(int64_t rank, Brought own, const std::function<void(std::vector<Brought>&)>& work) {
    std::unique_lock<std::mutex> lock(mutex);
    brought[rank] = std::move(own);
    const int64_t current = round;
    if (++arrived == static_cast<int64_t>(brought.size())) {
      arrived = 0;
      ++round;
      const at::NoGradGuard no_grad;
      work(brought);
      changed.notify_all();
    } else {
      changed.wait(lock, [&] { return round != current; });
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  int64_t arrived = 0, round = 0;
  std::vector<Brought> brought;
  // The parts of the last split by color, and the members of each: key and rank.
  std::map<int64_t, std::shared_ptr<Table>> parts;
  std::map<int64_t, std::vector<std::pair<int64_t, int64_t>>> members;
  detail::Mailbox mailbox;
};

at::Tensor reduced(const std::vector<at::Tensor>& values, ReduceOp op) {
  const at::Tensor all = at::stack(values).to(at::kDouble);
  if (op == ReduceOp::Max) return std::get<0>(all.max(0));
  if (op == ReduceOp::Min) return std::get<0>(all.min(0));
  return all.sum(0);
}

class TableBackend : public detail::TensorBackend {
 public:
  TableBackend(std::shared_ptr<Table> table, int64_t rank, at::Device device,
               std::shared_ptr<std::vector<detail::Call>> calls)
      : table_(std::move(table)), rank_(rank), device_(device), calls_(std::move(calls)) {}

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return static_cast<int64_t>(table_->brought.size()); }
  std::string name() const override { return "table"; }
  at::Device device() const override { return device_; }

  std::shared_ptr<Work> all_gather(const detail::Call& call, std::vector<GatherPart> parts) override {
    Brought own;
    own.gathered = std::move(parts);
    return run(call, std::move(own), [](std::vector<Brought>& ranks) {
      for (size_t p = 0; p < ranks[0].gathered.size(); ++p) {
        std::vector<at::Tensor> pieces;
        for (const Brought& rank : ranks) pieces.push_back(rank.gathered[p].input.view(-1));
        const at::Tensor all = at::cat(pieces);
        for (const Brought& rank : ranks) rank.gathered[p].output.view(-1).copy_(all);
      }
    });
  }
  std::shared_ptr<Work> reduce_scatter(const detail::Call& call, std::vector<ScatterPart> parts,
                                       at::ScalarType, ReduceOp op) override {
    return run(call, {{}, {}, std::move(parts), {}}, [op](std::vector<Brought>& ranks) {
      for (size_t p = 0; p < ranks[0].parts.size(); ++p) {
        for (size_t target = 0; target < ranks.size(); ++target) {
          const ScatterPart& part = ranks[target].parts[p];
          std::vector<at::Tensor> pieces;
          for (const Brought& rank : ranks) {
            const ElementRange& range = part.pieces[target];
            pieces.push_back(rank.parts[p].input.view(-1).narrow(0, range.begin, range.count));
          }
          part.output.view(-1).copy_(reduced(pieces, op));
        }
      }
    });
  }
  std::shared_ptr<Work> all_reduce(const detail::Call& call, const at::Tensor& tensor, ReduceOp op) override {
    return run(call, {tensor, tensor, {}, {}}, [op](std::vector<Brought>& ranks) {
      std::vector<at::Tensor> values;
      for (const Brought& rank : ranks) values.push_back(rank.input);
      const at::Tensor result = reduced(values, op);
      for (const Brought& rank : ranks) rank.output.copy_(result);
    });
  }
  std::shared_ptr<Work> all_to_all(const detail::Call& call, const at::Tensor& output,
                                   const at::Tensor& input, const std::vector<int64_t>&,
                                   const std::vector<int64_t>& input_counts) override {
    std::vector<int64_t> counts = input_counts;
    if (counts.empty()) counts.assign(size(), input.numel() / size());
    return run(call, {output, input, {}, counts}, [](std::vector<Brought>& ranks) {
      for (size_t target = 0; target < ranks.size(); ++target) {
        std::vector<at::Tensor> pieces;
        for (const Brought& rank : ranks)
          pieces.push_back(rank.input.view(-1).split_with_sizes(rank.numbers)[target]);
        ranks[target].output.view(-1).copy_(at::cat(pieces));
      }
    });
  }
  std::shared_ptr<Work> broadcast(const detail::Call& call, const at::Tensor& tensor, int64_t root) override {
    return run(call, {tensor, tensor, {}, {}}, [root](std::vector<Brought>& ranks) {
      for (const Brought& rank : ranks) rank.output.copy_(ranks[root].input);
    });
  }
  std::shared_ptr<Work> batch_p2p(const detail::Call& call, std::vector<P2pOp> ops) override {
    calls_->push_back(call);
    auto batch = std::make_shared<detail::P2pBatch>(call.description, call.timeout, rank_, std::move(ops));
    table_->mailbox.post(rank_, batch);
    return batch;
  }
  std::shared_ptr<Work> barrier(const detail::Call& call) override {
    return run(call, {}, [](std::vector<Brought>&) {});
  }
  std::unique_ptr<TensorBackend> split(const detail::Call& call, int64_t color, int64_t key,
                                       int64_t) override {
    run(call, {{}, {}, {}, {color, key}}, [&](std::vector<Brought>& ranks) {
      table_->parts.clear();
      table_->members.clear();
      for (size_t r = 0; r < ranks.size(); ++r) {
        table_->members[ranks[r].numbers[0]].emplace_back(ranks[r].numbers[1], r);
      }
      for (auto& [each, members] : table_->members) {
        std::sort(members.begin(), members.end());
        table_->parts[each] = std::make_shared<Table>(members.size());
      }
    });
    // The table of the split stays as it is until all ranks come to the next split.
    const std::lock_guard<std::mutex> lock(table_->mutex);
    const auto& members = table_->members[color];
    const int64_t rank = std::find(members.begin(), members.end(), std::pair(key, rank_)) - members.begin();
    std::shared_ptr<Table> part = table_->parts[color];
    return std::make_unique<TableBackend>(std::move(part), rank, device_, calls_);
  }

 private:
  std::shared_ptr<Work> run(const detail::Call& call, Brought own,
                            const std::function<void(std::vector<Brought>&)>& work) {
    if (call.after != nullptr) call.after->wait();
    calls_->push_back(call);
    table_->meet(rank_, std::move(own), work);
    return std::make_shared<DoneWork>(call.description);
  }

  std::shared_ptr<Table> table_;
  int64_t rank_;
  at::Device device_;
  std::shared_ptr<std::vector<detail::Call>> calls_;
};

// Runs body(communicator, the calls that the rank has made so far) on every rank.
void run_ranks(int64_t size, at::Device device,
               const std::function<void(Communicator&, std::vector<detail::Call>&)>& body) {
  const auto table = std::make_shared<Table>(size);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto calls = std::make_shared<std::vector<detail::Call>>();
      Communicator group(std::make_unique<TableBackend>(table, rank, device, calls), "tables");
      body(group, *calls);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TensorBackendTest, ACommunicatorNeedsNothingElseOfItsImplementation) {
  for (const int64_t size : {1, 2, 3, 4}) {
    SCOPED_TRACE(std::to_string(size) + " ranks");
    run_ranks(size, at::kCPU, [](Communicator& group, std::vector<detail::Call>&) {
      EXPECT_EQ(group.backend_name(), "table");
      testing::check_all_collectives(group);
      testing::check_messages(group);
      EXPECT_FALSE(group.shared_bytes(8).defined());
      EXPECT_THROW(group.write_shared(8, [] {}), Error);
    });
  }
}

TEST(TensorBackendTest, TensorsLieWhereTheImplementationSays) {
  run_ranks(3, at::kMeta, [](Communicator& group, std::vector<detail::Call>& calls) {
    EXPECT_EQ(group.device(), at::Device(at::kMeta));
    const auto on_meta = at::TensorOptions().device(at::kMeta);
    const at::Tensor one = at::empty({6}, on_meta), all = at::empty({18}, on_meta);
    group.all_gather_single(all, one);
    group.all_gather_v(all, one, {6, 6, 6});
    group.reduce_scatter_single(one, all);
    group.reduce_scatter_parts({{all, one, {{0, 6}, {3, 6}, {12, 6}}}}, at::kFloat);
    group.all_to_all_single(all, all);
    group.broadcast(one, 2);
    group.batch_p2p(
        {isend(one, (group.rank() + 1) % 3), irecv(at::empty({6}, on_meta), (group.rank() + 2) % 3)});
    EXPECT_EQ(calls.size(), 7);

    const at::Tensor elsewhere = at::ones({6});
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { group.all_reduce(elsewhere); },
             [&] { group.all_gather_single(all, elsewhere); },
             [&] { group.broadcast(elsewhere, 0); },
             [&] {
               group.reduce_scatter_parts({{at::Tensor(), elsewhere, {{0, 6}, {0, 6}, {0, 6}}}}, at::kFloat);
             },
             [&] { group.send(elsewhere, 0); },
         }) {
      const std::string error = testing::error_of(call);
      EXPECT_NE(error.find("E-CONFIG-ARGUMENT"), std::string::npos) << error;
      EXPECT_NE(error.find("got cpu, need meta"), std::string::npos) << error;
    }
    EXPECT_EQ(calls.size(), 7);  // none of these calls has reached the backend
  });
}

TEST(TensorBackendTest, AnImplementationIsToldWhatErrorsName) {
  run_ranks(2, at::kCPU, [](Communicator& group, std::vector<detail::Call>& calls) {
    const at::Tensor value = at::ones({2});
    const auto first = group.all_reduce(value);
    ReduceOptions options;
    options.timeout = std::chrono::milliseconds(1234);
    options.hint = "the test";
    options.after = first;
    group.all_reduce(value, true, options);
    const std::string rank = std::to_string(group.rank());
    EXPECT_EQ(calls[0].description, "all_reduce number 1 of group 'tables' on rank " + rank + " of 2");
    EXPECT_EQ(calls[1].description,
              "all_reduce number 2 of group 'tables' on rank " + rank + " of 2 (the test)");
    EXPECT_EQ(calls[1].hint, "the test");
    EXPECT_EQ(calls[1].timeout, std::chrono::milliseconds(1234));
    EXPECT_EQ(calls[1].after, detail::CountedWork::uncounted(first));
    EXPECT_EQ(calls[0].timeout, std::chrono::milliseconds(600'000));
  });
}

// A group of one rank takes tensors on any device.
TEST(TensorBackendTest, AGroupOfOneTakesAnyDevice) {
  const auto group = Communicator::single();
  const auto on_meta = at::TensorOptions().device(at::kMeta);
  const at::Tensor tensor = at::empty({4}, on_meta);
  group->all_gather_single(at::empty({4}, on_meta), tensor);
  group->all_reduce(tensor);
  group->batch_p2p({isend(tensor, 0), irecv(at::empty({4}, on_meta), 0)});
  // A message to oneself hangs if it is not received.
  const std::string error = testing::error_of([&] {
    group->send(at::ones({2}), 0, 3, false, {{std::chrono::milliseconds(20), "the test"}});
  });
  EXPECT_NE(error.find("send 0 -> 0 tag 3 (8 bytes)"), std::string::npos) << error;
}

}  // namespace
}  // namespace tessera::comm
