#include "tessera/comm/p2p_batch.h"

namespace tessera::comm::detail {

P2pBatch::P2pBatch(std::string description, std::chrono::milliseconds timeout, int64_t rank,
                   std::vector<P2pOp> ops, int64_t place)
    : PendingWork(std::move(description), timeout, place),
      rank_(rank),
      ops_(std::move(ops)),
      has_ended_(ops_.size(), false) {
  for (const P2pOp& op : ops_) num_bytes_.push_back(static_cast<int64_t>(op.tensor.nbytes()));
  if (ops_.empty()) finish();
}

void P2pBatch::end(size_t i, std::exception_ptr error) {
  std::exception_ptr first_error;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ops_[i].tensor = at::Tensor();
    has_ended_[i] = true;
    if (error_ == nullptr) error_ = std::move(error);
    if (++num_ended_ < ops_.size()) return;
    first_error = error_;
  }
  finish(first_error);
}

std::string P2pBatch::name(size_t i) const {
  const P2pOp& op = ops_[i];
  return (op.is_send ? "send " : "recv ") + std::to_string(rank_) + (op.is_send ? " -> " : " <- ") +
         std::to_string(op.peer) + " tag " + std::to_string(op.tag) + " (" + std::to_string(num_bytes_[i]) +
         " bytes)";
}

Error P2pBatch::size_error(size_t i, int64_t num_bytes_sent) const {
  return Error(ErrorKind::Peer, "MISMATCH", description() + ": the two ends of a message differ in size")
      .got("send " + std::to_string(ops_[i].peer) + " -> " + std::to_string(rank_) + " tag " +
           std::to_string(ops_[i].tag) + " (" + std::to_string(num_bytes_sent) + " bytes)")
      .need(name(i));
}

std::string P2pBatch::pending() const {
  constexpr int kMaxNames = 8;
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string text = "waits for ";
  int count = 0;
  for (size_t i = 0; i < ops_.size(); ++i) {
    if (has_ended_[i]) continue;
    if (count < kMaxNames) text += (count > 0 ? ", " : "") + name(i);
    ++count;
  }
  return count > kMaxNames ? text + " and " + std::to_string(count - kMaxNames) + " more" : text;
}

}  // namespace tessera::comm::detail
