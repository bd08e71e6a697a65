// The temporaries of AtomicFile that killed processes have left.
#pragma once

#include <string>
#include <vector>

namespace tessera::io {

// Returns the temporaries that lie beside `path`, those of living processes too.
std::vector<std::string> temporaries_of(const std::string& path);

// Removes the temporaries of `path` whose processes have ended, and says so. A living process holds the lock
// of its temporary; where the file system knows no locks, nothing is removed. What cannot be removed stays.
void remove_leftovers(const std::string& path);

}  // namespace tessera::io
