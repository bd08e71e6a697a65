#include "tessera/parallel/tensor_parallel/token_exchange.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "tessera/core/error.h"

namespace tessera::parallel::detail {
namespace {

using Group = std::shared_ptr<comm::Communicator>;
using Works = std::vector<std::shared_ptr<comm::Work>>;

// A gather may be under way while the rows of a sum are being made, so each has messages of its own.
constexpr int kGatherTag = 0, kSumTag = 1;

void wait_for(const Works& works) {
  for (const auto& work : works) work->wait();
}

// The messages of one rank in an exchange of tokens.
class Messages {
 public:
  Messages(Group group, int tag, std::string what, int64_t num_own)
      : group_(std::move(group)), tag_(tag), what_(std::move(what)), num_own_(num_own) {}

  int64_t size() const { return group_->size(); }
  int64_t rank() const { return group_->rank(); }
  // Returns the rank `steps` after this one; `steps` may be negative.
  int64_t after(int64_t steps) const { return (rank() + steps + size()) % size(); }
  ops::RowRange rows(int64_t rank) const { return {rank * num_own_, num_own_}; }

  std::shared_ptr<comm::Work> issue(comm::P2pOp op) const {
    return group_->batch_p2p({std::move(op)}, true, {comm::hint(what_)});
  }
  std::shared_ptr<comm::Work> send(const at::Tensor& rows, int64_t to) const {
    return issue(comm::isend(rows, to, tag_));
  }
  std::shared_ptr<comm::Work> recv(const at::Tensor& rows, int64_t from) const {
    return issue(comm::irecv(rows, from, tag_));
  }

 private:
  const Group group_;
  const int tag_;
  const std::string what_;
  const int64_t num_own_;
};

// Starts all sends and receives when it is made. The own rows of `whole` must already be there.
class GatheredTokens : public ops::IncomingRows {
 public:
  GatheredTokens(const Messages& messages, const at::Tensor& whole) : IncomingRows(whole, order(messages)) {
    const at::Tensor own = messages.rows(messages.rank()).of(whole);
    for (int64_t i = 1; i < messages.size(); ++i) {
      const int64_t from = messages.after(-i);
      sent_.push_back(messages.send(own, messages.after(i)));
      received_.push_back(messages.recv(messages.rows(from).of(whole), from));
    }
  }

 private:
  static std::vector<ops::RowRange> order(const Messages& messages) {
    std::vector<ops::RowRange> ranges;
    for (int64_t i = 0; i < messages.size(); ++i) ranges.push_back(messages.rows(messages.after(-i)));
    return ranges;
  }
  void wait(size_t range) override {
    if (range > 0) received_[range - 1]->wait();
    // The sends read the own rows, so they are waited for before the caller has `whole` for itself.
    if (range == received_.size()) wait_for(sent_);
  }

  Works sent_, received_;  // by the distance of the rank, from 1 on
};

// Starts to receive when it is made, and sends each rank's rows as soon as they are made. This rank's own
// rows come last, so they need not be there before finish().
class SummedTokens : public ops::OutgoingRows {
 public:
  SummedTokens(Messages messages, const at::Tensor& whole)
      : OutgoingRows(order(messages)), messages_(std::move(messages)), whole_(whole) {
    parts_.resize(static_cast<size_t>(messages_.size()));
    parts_[static_cast<size_t>(messages_.rank())] = messages_.rows(messages_.rank()).of(whole);
    for (int64_t i = 1; i < messages_.size(); ++i) {
      const int64_t from = messages_.after(-i);
      at::Tensor& part = parts_[static_cast<size_t>(from)];
      part = at::empty_like(parts_[static_cast<size_t>(messages_.rank())]);
      received_.push_back(messages_.recv(part, from));
    }
  }

  at::Tensor finish() override {
    wait_for(received_);
    const auto type = whole_.scalar_type();
    const bool is_short = type == at::kBFloat16 || type == at::kHalf;
    at::Tensor sum = is_short ? parts_[0].to(at::kFloat) : parts_[0].clone();
    for (size_t rank = 1; rank < parts_.size(); ++rank) sum.add_(parts_[rank]);
    wait_for(sent_);
    return sum.to(type);
  }

 private:
  static std::vector<ops::RowRange> order(const Messages& messages) {
    std::vector<ops::RowRange> ranges;
    for (int64_t i = 1; i <= messages.size(); ++i) ranges.push_back(messages.rows(messages.after(i)));
    return ranges;
  }
  void send(size_t range) override {
    const int64_t to = messages_.after(static_cast<int64_t>(range) + 1);
    if (to != messages_.rank()) sent_.push_back(messages_.send(messages_.rows(to).of(whole_), to));
  }

  const Messages messages_;
  const at::Tensor whole_;
  std::vector<at::Tensor> parts_;  // this rank's tokens, by the rank that has made them
  Works sent_, received_;
};

}  // namespace

int64_t num_own_tokens(const at::Tensor& tokens, const comm::Communicator& group) {
  if (tokens.size(0) % group.size() == 0) return tokens.size(0) / group.size();
  throw Error(ErrorKind::Config, "TENSOR-PARALLEL",
              "sequence parallelism cuts a batch into equal numbers of tokens")
      .got(std::to_string(tokens.size(0)) + " tokens")
      .need("a multiple of " + std::to_string(group.size()))
      .hint("add tokens without a label, as a document of their own");
}

TokenExchange::TokenExchange(std::shared_ptr<comm::Communicator> group, std::string what)
    : group_(std::move(group)), what_(std::move(what)) {}

std::shared_ptr<ops::IncomingRows> TokenExchange::gather(const at::Tensor& own) const {
  const Messages messages(group_, kGatherTag, what_, own.size(0));
  std::vector<int64_t> sizes = own.sizes().vec();
  sizes[0] *= group_->size();
  const at::Tensor whole = at::empty(sizes, own.options().requires_grad(false));
  messages.rows(group_->rank()).of(whole).copy_(own.detach());
  return std::make_shared<GatheredTokens>(messages, whole);
}

std::shared_ptr<ops::OutgoingRows> TokenExchange::scatter_sum(const at::Tensor& whole) const {
  Messages messages(group_, kSumTag, what_, num_own_tokens(whole, *group_));
  return std::make_shared<SummedTokens>(std::move(messages), whole.detach());
}

}  // namespace tessera::parallel::detail
