// Lets the ranks of a group make the rows of streams together.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/data/stream/stream_exchange.h"

namespace tessera::train {

class GroupExchange : public data::StreamExchange {
 public:
  // Nothing else may use `group`, so that the order of its calls is that of the one thread that makes rows.
  explicit GroupExchange(std::shared_ptr<comm::Communicator> group) : group_(std::move(group)) {}

  size_t rank() const override { return static_cast<size_t>(group_->rank()); }
  size_t size() const override { return static_cast<size_t>(group_->size()); }
  std::vector<std::string> all_gather(const std::string& bytes) override;
  std::string scatter(size_t root, const std::vector<std::string>& parts) override;

 private:
  const std::shared_ptr<comm::Communicator> group_;
};

}  // namespace tessera::train
