// The interface that carries bytes between the ranks of host memory; everything else is built on it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/comm/byte_exchange.h"
#include "tessera/comm/p2p_batch.h"

namespace tessera::comm::detail {

// Operations block and are collective, except post(). Each transport, also one that was split off another, is
// called from one thread at a time, and different transports from different threads at once. post() may be
// called while another thread is in an operation. Failures are thrown as Error(Peer).
class Transport : public ByteExchange {
 public:
  virtual std::string name() const = 0;

  virtual void barrier() = 0;
  // Issues the messages of a batch and returns; the batch is told when each has ended. No message waits for
  // another one.
  virtual void post(std::shared_ptr<P2pBatch> batch) = 0;

  // Maps `num_bytes` of memory on every rank of the group: page-aligned, zeros at first. Null, on every rank
  // alike, if the ranks do not run on one machine or the machine refuses. Collective; but each rank releases
  // the memory by itself, with its last copy of the pointer.
  virtual std::shared_ptr<char> map_shared(int64_t num_bytes) = 0;

  // Makes the transport of the ranks that gave the same `color`, ordered by `key` and then by rank.
  virtual std::unique_ptr<Transport> split(int64_t color, int64_t key) = 0;
};

}  // namespace tessera::comm::detail
