// Messages between the devices of two ranks.
#pragma once

#include <memory>
#include <vector>

#include "tessera/comm/host/host_backend.h"
#include "tessera/comm/nccl/nccl_group.h"

namespace tessera::comm::detail {

// [Note: messages by NCCL]
// NCCL knows no tags, and a stream does one thing after the other: a message whose other end has not been
// issued would hold up all behind it. So the two ends of a message meet on the host first. The sender tells
// the size, under the message's tag. The receiver, when its own end has been issued, answers with the
// message's number between the two ranks in this direction. Both then put the message behind those of lower
// numbers, on a stream and communicator of this direction between these two ranks alone, which are made with
// the first message. Whatever is on such a stream has both its ends there, so messages never wait for each
// other forever. Work::wait() waits on the host until this agreement, and not for the data.
class NcclMessages {
 public:
  // Collective over the ranks of `host`, which must outlive this object. `start` is as in NcclBackend's
  // constructor.
  NcclMessages(NcclContext context, HostBackend& host, const Call& start);
  ~NcclMessages();

  // Issues the messages of a batch, as Communicator::batch_p2p() does.
  std::shared_ptr<Work> post(const Call& call, std::vector<P2pOp> ops);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace tessera::comm::detail
