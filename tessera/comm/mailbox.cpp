#include "tessera/comm/mailbox.h"

#include <ATen/ATen.h>

namespace tessera::comm::detail {
namespace {

at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.detach().view(-1).view(at::kByte); }

}  // namespace

void Mailbox::post(int64_t rank, const std::shared_ptr<P2pBatch>& batch) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < batch->size(); ++i) {
    const P2pOp& op = batch->op(i);
    End send{batch, i}, recv{batch, i};
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const Key key(op.is_send ? rank : op.peer, op.is_send ? op.peer : rank, op.tag);
      auto& waiting = waiting_[key];
      if (waiting.empty() || waiting.front().batch->op(waiting.front().index).is_send == op.is_send) {
        waiting.push_back({batch, i});
        continue;
      }
      (op.is_send ? recv : send) = std::move(waiting.front());
      waiting.pop_front();
      if (waiting.empty()) waiting_.erase(key);
    }
    // Each end has an error of its own: they are thrown on two threads.
    std::exception_ptr send_error, recv_error;
    const int64_t num_bytes = send.batch->num_bytes(send.index);
    if (num_bytes == recv.batch->num_bytes(recv.index)) {
      as_bytes(recv.batch->op(recv.index).tensor).copy_(as_bytes(send.batch->op(send.index).tensor));
    } else {
      const Error error = recv.batch->size_error(recv.index, num_bytes);
      send_error = std::make_exception_ptr(error);
      recv_error = std::make_exception_ptr(error);
    }
    send.batch->end(send.index, send_error);
    recv.batch->end(recv.index, recv_error);
  }
}

}  // namespace tessera::comm::detail
