// Sends requests to the hub and to its storage, again where a passing trouble stops them.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tessera/hub/settings.h"
#include "tessera/hub/upload_target.h"
#include "tessera/io/http_client.h"

namespace tessera::hub {

// The type of what is said about large files, by Git's extension for them.
inline constexpr const char* kLfsType = "application/vnd.git-lfs+json";

// Is used by one thread. The token goes to the hub's own host alone. Calls throw what Retries throws, and
// E-STORAGE-HUB-ANSWER for an address that is none of the web, or that would be spoken to without encryption
// where the hub is not.
class UploadClient {
 public:
  UploadClient(const UploadTarget& target, const Limits& limits, const std::atomic<bool>& stop);

  struct Reply {
    io::HttpAnswer head;
    std::string text;  // of an answer with status 2xx

    // Reads the text. Throws E-STORAGE-HUB-ANSWER.
    nlohmann::json json() const;
  };
  // Sends `body`. `what` is what the request is for, in the words of an error.
  Reply post(const std::string& what, const std::string& url, const std::string& body,
             const std::string& type = "application/json");
  // Sends bytes to a storage.
  io::HttpAnswer put(const std::string& what, io::HttpSending sending);

  const UploadTarget& target() const { return target_; }
  // Throws E-STORAGE-HUB-BROKEN once `stop` is true.
  void check_stop() const;

 private:
  // Returns the client that has the token for the hub, or the one that has none for all others.
  io::HttpClient& client_for(const std::string& url);
  Reply ask(const std::string& what, const io::HttpSending& sending);

  const UploadTarget target_;
  const Limits limits_;
  const std::atomic<bool>& stop_;
  const std::string hub_;  // its address
  io::HttpClient hub_client_, storage_client_;
};

// Makes the Error(Storage) for an answer that is none of a hub.
Error upload_answer_error(const std::string& what);

}  // namespace tessera::hub
