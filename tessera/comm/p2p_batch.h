// Messages that were issued together.
#pragma once

#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/comm/p2p_op.h"
#include "tessera/comm/pending_work.h"
#include "tessera/core/error.h"

namespace tessera::comm::detail {

// The work of a batch of messages, which is done when all of them have ended. Whoever carries the messages
// calls end() for each.
class P2pBatch : public PendingWork {
 public:
  P2pBatch(std::string description, std::chrono::milliseconds timeout, int64_t rank, std::vector<P2pOp> ops,
           int64_t place = -1);

  size_t size() const { return ops_.size(); }
  // The tensor is there until its message has ended.
  const P2pOp& op(size_t i) const { return ops_[i]; }
  int64_t num_bytes(size_t i) const { return num_bytes_[i]; }
  // Notes that message i has ended, with an error or none. The work ends after its last message, with the
  // first error.
  void end(size_t i, std::exception_ptr error = nullptr);
  // Names message i for errors: "recv 1 <- 2 tag 3 (64 bytes)".
  std::string name(size_t i) const;
  // Makes the error for the receiving end i of a message whose sender gave another number of bytes.
  Error size_error(size_t i, int64_t num_bytes_sent) const;

 private:
  std::string pending() const override;

  const int64_t rank_;
  std::vector<P2pOp> ops_;
  std::vector<int64_t> num_bytes_;
  mutable std::mutex mutex_;
  std::vector<bool> has_ended_;
  size_t num_ended_ = 0;
  std::exception_ptr error_;
};

}  // namespace tessera::comm::detail
