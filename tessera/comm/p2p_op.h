// A message from one rank to another.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tessera::comm {

// One end of a message, as Communicator::batch_p2p() issues it. The two ends meet by their peers and tag;
// several with the same peers and tag meet in the order in which they are issued. Both ends have the same
// number of bytes.
struct P2pOp {
  // Tags of users are below this limit.
  static constexpr int kTagLimit = 32767;

  bool is_send = false;
  at::Tensor tensor;  // contiguous; read by a send, written by a recv
  int64_t peer = 0;   // may be the rank itself
  int tag = 0;
};

inline P2pOp isend(at::Tensor tensor, int64_t destination, int tag = 0) {
  return {true, std::move(tensor), destination, tag};
}
inline P2pOp irecv(at::Tensor tensor, int64_t source, int tag = 0) {
  return {false, std::move(tensor), source, tag};
}

}  // namespace tessera::comm
