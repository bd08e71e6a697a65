// What the operations of one communicator work with.
#pragma once

#include <memory>

#include "tessera/comm/backend.h"
#include "tessera/comm/node_group.h"

namespace tessera::comm::detail {

// A backend, and the memory that its ranks share where they run on one machine. Used by the thread that runs
// the operations.
class Group {
 public:
  Group(std::unique_ptr<Backend> backend, bool may_share_memory)
      : backend_(std::move(backend)), may_share_memory_(may_share_memory) {}

  Backend& backend() { return *backend_; }
  const Backend& backend() const { return *backend_; }
  bool may_share_memory() const { return may_share_memory_; }
  void set_may_share_memory(bool is_allowed) { may_share_memory_ = is_allowed; }

  // Null where the ranks share no memory. The first call is collective.
  NodeGroup* node() {
    if (!is_node_known_ && may_share_memory_ && backend_->size() > 1) node_ = NodeGroup::create(*backend_);
    is_node_known_ = true;
    return node_.get();
  }

 private:
  std::unique_ptr<Backend> backend_;
  bool may_share_memory_;
  bool is_node_known_ = false;
  std::unique_ptr<NodeGroup> node_;
};

}  // namespace tessera::comm::detail
