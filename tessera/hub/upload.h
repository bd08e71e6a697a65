// Uploads the folder of a model or an adapter to a repository of the hub.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "tessera/hub/settings.h"
#include "tessera/hub/upload_files.h"
#include "tessera/hub/upload_target.h"

namespace tessera::hub {

// The limits of uploads: the hub may take minutes to join the parts of a large file, and says nothing then.
Limits upload_limits();

// Makes the repository, and its branch, unless they are there, and sees that the token may write to it.
// Throws what check_upload() throws, upload_refusal(), E-STORAGE-HUB-UNREACHABLE, -HUB-BROKEN and
// -HUB-ANSWER.
void prepare_upload(const UploadTarget& target, const Limits& limits = upload_limits());

// Uploads the files (files_to_upload()) in one commit, which all of them are in or none, and which removes
// the weights of an earlier result that was cut into other files. The repository is there. Ends soon, with an
// error, once `stop` is true, and sets it itself where a file fails. One line tells what is sent. Throws what
// prepare_upload() throws, E-STORAGE-HUB-UPLOAD, and Storage of the disk.
void upload(std::vector<LocalFile> files, const UploadTarget& target, std::atomic<bool>& stop,
            const Limits& limits = upload_limits());

}  // namespace tessera::hub
