#include "tessera/parallel/fsdp/coded_reduce.h"

#include <functional>
#include <utility>

#include <ATen/ATen.h>

#include "tessera/core/error.h"
#include "tessera/device/memory_scope.h"

namespace tessera::parallel::detail {
namespace {

// Names pieces: piece of parts[part] for rank `rank` of the shard group.
using PieceOf = std::function<at::Tensor(size_t part, int64_t rank)>;

// One exchange of coded pieces in a group. Rank i of the group gets the pieces for the ranks receivers[i] of
// the shard group from every rank of the group.
class Exchange {
 public:
  // `piece_of` gives the values of a piece, undefined for zeros.
  Exchange(const std::vector<CodedPart>& parts, comm::Communicator& group,
           std::vector<std::vector<int64_t>> receivers, const PieceOf& piece_of, const std::string& hint)
      : parts_(parts), receivers_(std::move(receivers)), group_(group) {
    const MemoryScope memory(MemoryCategory::Communication);
    std::vector<int64_t> sent_counts;
    int64_t num_sent = 0;
    for (const std::vector<int64_t>& ranks : receivers_)
      num_sent += sent_counts.emplace_back(num_bytes(ranks));
    const int64_t own = sent_counts[static_cast<size_t>(group.rank())];
    const auto options = at::TensorOptions(group.device()).dtype(at::kByte);
    sent_ = at::empty({num_sent}, options);
    received_ = at::empty({own * group.size()}, options);
    int64_t offset = 0;
    for (const std::vector<int64_t>& ranks : receivers_) {
      for_each_piece(ranks, sent_, offset, [&](size_t part, int64_t rank, const at::Tensor& codes) {
        const at::Tensor values = piece_of(part, rank);
        values.defined() ? parts_[part].codes.encode(codes, values) : void(codes.zero_());
      });
    }
    work_ = group.all_to_all_v(received_, sent_, std::vector<int64_t>(sent_counts.size(), own), sent_counts,
                               true, {comm::hint(hint)});
  }

  // Waits, and adds the pieces that have arrived to what `sum_of` gives for them.
  void finish(const PieceOf& sum_of) {
    work_->wait();
    int64_t offset = 0;
    for (int64_t from = 0; from < group_.size(); ++from) {
      for_each_piece(receivers_[static_cast<size_t>(group_.rank())], received_, offset,
                     [&](size_t part, int64_t rank, const at::Tensor& codes) {
                       parts_[part].codes.add(sum_of(part, rank), codes);
                     });
    }
  }
  bool is_done() const { return work_->is_done(); }

 private:
  int64_t num_bytes(const std::vector<int64_t>& ranks) const {
    int64_t sum = 0;
    for (const int64_t rank : ranks) {
      for (const CodedPart& part : parts_)
        sum += part.codes.num_bytes(part.part.pieces[static_cast<size_t>(rank)].count);
    }
    return sum;
  }
  // Calls f(part, rank, codes) for the pieces of these ranks, whose codes lie in `bytes` from `offset` on,
  // and moves `offset` behind them.
  template <class F>
  void for_each_piece(const std::vector<int64_t>& ranks, const at::Tensor& bytes, int64_t& offset,
                      const F& f) const {
    for (const int64_t rank : ranks) {
      for (size_t i = 0; i < parts_.size(); ++i) {
        const int64_t length =
            parts_[i].codes.num_bytes(parts_[i].part.pieces[static_cast<size_t>(rank)].count);
        if (length > 0) f(i, rank, bytes.narrow(0, offset, length));
        offset += length;
      }
    }
  }

  const std::vector<CodedPart>& parts_;
  const std::vector<std::vector<int64_t>> receivers_;
  comm::Communicator& group_;
  at::Tensor sent_, received_;
  std::shared_ptr<comm::Work> work_;
};

// Gives the values of a piece of an input.
at::Tensor input_piece(const comm::ScatterPart& part, int64_t rank) {
  if (!part.input.defined()) return part.input;
  const comm::ElementRange& piece = part.pieces[static_cast<size_t>(rank)];
  return part.input.view(-1).narrow(0, piece.begin, piece.count);
}

at::Tensor float_zeros(int64_t numel, at::Device device) {
  const MemoryScope memory(MemoryCategory::Communication);
  return at::zeros({numel}, at::TensorOptions(device).dtype(at::kFloat));
}

// Does the first of two stages and returns this machine's sums, by part, for the rank that has this rank's
// place on each machine.
std::vector<std::vector<at::Tensor>> sum_in_machine(const std::vector<CodedPart>& parts,
                                                    const ShardGroups& groups, const std::string& hint) {
  const int64_t size = groups.machine->size(), num_machines = groups.shard->size() / size;
  std::vector<std::vector<int64_t>> receivers(static_cast<size_t>(size));
  for (int64_t rank = 0; rank < groups.shard->size(); ++rank)
    receivers[static_cast<size_t>(rank % size)].push_back(rank);
  Exchange exchange(
      parts, *groups.machine, receivers,
      [&](size_t part, int64_t rank) { return input_piece(parts[part].part, rank); }, hint);
  std::vector<std::vector<at::Tensor>> sums(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    for (int64_t m = 0; m < num_machines; ++m) {
      const auto receiver = static_cast<size_t>(m * size + groups.machine->rank());
      sums[i].push_back(float_zeros(parts[i].part.pieces[receiver].count, groups.shard->device()));
    }
  }
  exchange.finish([&](size_t part, int64_t rank) { return sums[part][static_cast<size_t>(rank / size)]; });
  return sums;
}

class CodedReduce : public comm::Work {
 public:
  CodedReduce(std::vector<CodedPart> parts, const ShardGroups& groups, const std::string& hint)
      : comm::Work("coded reduce-scatter: " + hint), parts_(std::move(parts)) {
    const int64_t size = groups.machine->size(), rank = groups.shard->rank();
    std::vector<std::vector<int64_t>> receivers;
    if (size == 1 || size == groups.shard->size()) {
      for (int64_t to = 0; to < groups.shard->size(); ++to) receivers.push_back({to});
      exchange_ = std::make_unique<Exchange>(
          parts_, *groups.shard, std::move(receivers),
          [&](size_t part, int64_t to) { return input_piece(parts_[part].part, to); }, hint);
    } else {
      // The ranks of a machine wait for each other here, since what crosses the link needs their sums. The
      // exchange over the link then runs beside the compute.
      const auto sums = sum_in_machine(parts_, groups, hint);
      for (int64_t m = 0; m < groups.machines->size(); ++m) receivers.push_back({m * size + rank % size});
      exchange_ = std::make_unique<Exchange>(
          parts_, *groups.machines, std::move(receivers),
          [&](size_t part, int64_t to) { return sums[part][static_cast<size_t>(to / size)]; }, hint);
    }
    for (CodedPart& part : parts_) part.part.input.reset();
  }

  void wait() override {
    if (exchange_ == nullptr) return;
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> sums;
    for (const CodedPart& part : parts_) {
      const at::Tensor flat = part.part.output.view(-1);
      sums.push_back(flat.scalar_type() == at::kFloat ? flat.zero_()
                                                      : float_zeros(flat.numel(), flat.device()));
    }
    exchange_->finish([&](size_t part, int64_t) { return sums[part]; });
    for (size_t i = 0; i < parts_.size(); ++i) {
      const at::Tensor flat = parts_[i].part.output.view(-1);
      if (flat.scalar_type() != at::kFloat) flat.copy_(sums[i]);
    }
    exchange_.reset();
  }
  bool is_done() const override { return exchange_ == nullptr || exchange_->is_done(); }

 private:
  std::vector<CodedPart> parts_;
  std::unique_ptr<Exchange> exchange_;  // null once the sums are written
};

}  // namespace

std::shared_ptr<comm::Work> start_coded_reduce(std::vector<CodedPart> parts, const ShardGroups& groups,
                                               const std::string& hint) {
  return std::make_shared<CodedReduce>(std::move(parts), groups, hint);
}

}  // namespace tessera::parallel::detail
