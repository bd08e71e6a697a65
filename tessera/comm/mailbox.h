// Messages between ranks that are threads of one process, or one rank and itself.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "tessera/comm/p2p_batch.h"

namespace tessera::comm::detail {

// Whichever end of a message is posted second copies it, straight from tensor to tensor. Thread-safe.
class Mailbox {
 public:
  // Issues the messages of a batch of rank `rank`.
  void post(int64_t rank, const std::shared_ptr<P2pBatch>& batch);

 private:
  // One end of a message.
  struct End {
    std::shared_ptr<P2pBatch> batch;
    size_t index = 0;
  };
  // The ends of each key that wait for their counterparts: either all sends or all recvs.
  using Key = std::tuple<int64_t, int64_t, int>;  // source, destination, tag
  std::mutex mutex_;
  std::map<Key, std::deque<End>> waiting_;
};

}  // namespace tessera::comm::detail
