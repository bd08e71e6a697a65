// The transport of a group and the memory that its ranks share.
#pragma once

#include <memory>

#include "tessera/comm/host/node_group.h"
#include "tessera/comm/host/transport.h"

namespace tessera::comm::detail {

// A transport, and the memory that its ranks share if they run on one machine. The thread that runs the
// group's operations calls node().
class Group {
 public:
  Group(std::unique_ptr<Transport> transport, bool may_share_memory)
      : transport_(std::move(transport)), may_share_memory_(may_share_memory) {}

  Transport& transport() { return *transport_; }
  const Transport& transport() const { return *transport_; }
  bool may_share_memory() const { return may_share_memory_; }
  void set_may_share_memory(bool is_allowed) { may_share_memory_ = is_allowed; }

  // The collectives over shared memory; null if the ranks share none. The first call is collective.
  NodeGroup* node() {
    if (!is_node_known_ && may_share_memory_ && transport_->size() > 1)
      node_ = NodeGroup::create(*transport_);
    is_node_known_ = true;
    return node_.get();
  }

 private:
  std::unique_ptr<Transport> transport_;
  bool may_share_memory_;
  bool is_node_known_ = false;
  std::unique_ptr<NodeGroup> node_;
};

}  // namespace tessera::comm::detail
