// How the ranks that make the rows of streams together hear of each other.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tessera::data {

// Used by one thread of each rank. Both operations are collective, and throw Error(Peer) and Error(Hang).
class RowExchange {
 public:
  virtual ~RowExchange() = default;

  virtual size_t rank() const = 0;
  virtual size_t size() const = 0;
  // Every rank's bytes, by rank.
  virtual std::vector<std::string> all_gather(const std::string& bytes) = 0;
  // The bytes that `root` has for this rank: of its `parts`, one a rank. Those of other ranks are not looked
  // at.
  virtual std::string scatter(size_t root, const std::vector<std::string>& parts) = 0;
};

}  // namespace tessera::data
