// Downloads one file of a repository into the cache.
#pragma once

#include <atomic>
#include <string>

#include "tessera/hub/cache.h"
#include "tessera/hub/listing.h"
#include "tessera/hub/progress.h"
#include "tessera/io/http_client.h"

namespace tessera::hub {

// Returns whether the cache has the contents of the file.
bool has_blob(const Repository& repository, const RemoteFile& file);
// Returns the number of bytes of the file that an earlier download has left.
int64_t bytes_left_before(const Repository& repository, const RemoteFile& file);

// Puts the contents of the file at this commit into the cache, unless they are there: into <etag>.incomplete,
// which goes on where an earlier download has ended, and takes its name once size and SHA-256 (where the hub
// tells it) are right. Throws refusal(), what Retries throws, E-STORAGE-HUB-CHECK for contents that stay
// wrong, and Storage of the disk.
void download_blob(io::HttpClient& client, const Repository& repository, const std::string& commit,
                   const RemoteFile& file, const Limits& limits, const std::atomic<bool>& stop,
                   Progress* progress);

}  // namespace tessera::hub
