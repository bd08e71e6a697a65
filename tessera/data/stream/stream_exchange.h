// Communication between the ranks that make the rows of streams together.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tessera::data {

// Used by one thread of each rank. Both operations are collective, and throw Error(Peer) and Error(Hang).
class StreamExchange {
 public:
  virtual ~StreamExchange() = default;

  virtual size_t rank() const = 0;
  virtual size_t size() const = 0;
  // Returns every rank's bytes, in the order of ranks.
  virtual std::vector<std::string> all_gather(const std::string& bytes) = 0;
  // Returns the bytes that rank `root` has for this rank. On `root`, `parts` holds one text for each rank;
  // the `parts` of other ranks are ignored.
  virtual std::string scatter(size_t root, const std::vector<std::string>& parts) = 0;
};

}  // namespace tessera::data
