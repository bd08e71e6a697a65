// Uploads one large file to the storage of the hub, by the protocol of Git LFS: whole, or in the parts that
// the hub names.
#pragma once

#include <string>

#include "tessera/hub/progress.h"
#include "tessera/hub/upload_client.h"
#include "tessera/hub/upload_files.h"

namespace tessera::hub {

// Uploads the file, unless the hub has its contents already, and counts its bytes. Returns its SHA-256. Where
// the storage refuses what it gets, or an address that the hub gave has become too old, the hub is asked for
// new ones, twice. Throws E-STORAGE-HUB-UPLOAD where that does not help, upload_refusal(), what UploadClient
// throws, and Storage of the disk.
std::string upload_large_file(UploadClient& client, const LocalFile& file, Progress& progress);

}  // namespace tessera::hub
