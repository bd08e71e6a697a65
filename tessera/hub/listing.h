// Asks the hub about a repository: its commit, its files, and why it gives one of them to nobody.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "tessera/core/error.h"
#include "tessera/hub/cache.h"
#include "tessera/hub/retries.h"
#include "tessera/io/http_client.h"

namespace tessera::hub {

struct RemoteFile {
  std::string name;  // below the repository's folder; is_inner_path() need not hold
  int64_t size = 0;
  std::string etag;  // the name of the blob: SHA-256 of a large file, Git's checksum of another
  bool has_sha256 = false;
};

struct Listing {
  std::string commit;
  std::map<std::string, RemoteFile> files;
};

// Asks the hub for the files of the repository. Throws refusal(), what Retries throws, and
// E-STORAGE-HUB-ANSWER for an answer that is none of a hub.
Listing list_files(io::HttpClient& client, const Repository& repository, Retries& retries);

// Reads such an answer.
Listing parse_listing(std::string_view text, const Repository& repository);

// Returns the address of a file at a commit.
std::string file_url(const Repository& repository, const std::string& commit, const std::string& name);

// Makes the Error(Config) for an answer other than 2xx: E-CONFIG-HUB-ACCESS where the hub wants to know the
// user, or wants a licence accepted; E-CONFIG-HUB-NOT-FOUND where it has no such repository or revision; else
// E-CONFIG-HUB-REFUSED.
Error refusal(const Repository& repository, const io::HttpAnswer& answer);

}  // namespace tessera::hub
