// Which file it is, by what the system says of it and by its content.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::data {

// Device, inode, size and times of change: another text once the file has been written to. Throws
// Error(Storage).
std::string file_identity(const std::string& path);

// A hash of the file's bytes. They are read once: `folder` remembers the hash by the file's identity, for
// files that were not changed in the last seconds before (a change within the clock's step would not show).
// What cannot be remembered is no error. Throws Error(Storage) when the file cannot be read.
uint64_t content_hash(const std::string& path, const std::string& folder);

}  // namespace tessera::data
