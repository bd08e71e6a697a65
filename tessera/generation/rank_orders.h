// Messages by which the first of several ranks tells the others what to do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/comm/communicator.h"

namespace tessera::generation {

class RankOrders {
 public:
  // Collective over the ranks of `world`.
  explicit RankOrders(comm::Communicator& world);

  bool is_first() const { return group_->rank() == 0; }
  // Sends the message to all other ranks, each of which must call hear(); waits for them. The first rank
  // calls it.
  void tell(const std::string& message);
  // Returns the next message of the first rank, however long it takes to come. All other ranks call it.
  std::string hear();
  // Returns the smallest of all ranks' values. Collective.
  int64_t least_of(int64_t value);
  // Returns whether all ranks have the same text. Collective.
  bool is_same(const std::string& text);

 private:
  std::shared_ptr<comm::Communicator> group_;
};

}  // namespace tessera::generation
