// Tells files apart, by what the system says of them and by their content.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::data {

// Returns a text of the file's device, inode, size and times of change, which is another one once the file
// has been written to. Throws Error(Storage).
std::string file_identity(const std::string& path);

// Returns a hash of the file's bytes. They are read once: `folder` keeps the hash under the file's identity.
// It is not kept for a file that was changed in the last seconds before, since another change within the
// clock's step would not show. A hash that cannot be kept is no error. Throws Error(Storage) when the file
// cannot be read.
uint64_t content_hash(const std::string& path, const std::string& folder);

}  // namespace tessera::data
