// Asks an endpoint many things, some at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tessera/scoring/judge/endpoint.h"

namespace tessera::scoring::judge {

// Calls work(endpoint, i) for each i below `count`, on up to `parallel` threads with a connection each. A
// line begins with `doing` and tells how many are done. A request that the endpoint refuses does not stop the
// others: the first of these errors is thrown at the end, with their number. Any other error stops them and
// is thrown.
void ask_each(const EndpointOptions& options, size_t count, int64_t parallel, const std::string& doing,
              const std::function<void(Endpoint& endpoint, size_t i)>& work);

}  // namespace tessera::scoring::judge
