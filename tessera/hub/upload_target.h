// Says to which repository of the hub a result goes, and whether it can.
#pragma once

#include <optional>
#include <string>

#include "tessera/core/error.h"
#include "tessera/hub/cache.h"
#include "tessera/io/http_client.h"

namespace tessera::hub {

struct UploadTarget {
  std::string id;                                 // org/name
  std::string revision = {};                      // a branch; "" = main
  std::optional<bool> is_private = std::nullopt;  // of a new repository; unset: as its owner's account has it

  Repository repository() const { return {Kind::Model, id, revision}; }
  std::string wanted() const { return repository().wanted(); }
  std::string shown() const { return repository().shown(); }
  // The address of its page.
  std::string page() const;
  // The shell command that uploads the folder to it.
  std::string command(const std::string& folder) const;
};

// Returns whether the hub takes a new repository of this name: "org/name", whose parts begin and end with
// letters, digits or '_', without "--", "..", or ".git" at the end.
bool is_upload_id(const std::string& id);

// Throws where no upload can succeed, without asking the hub: E-CONFIG-HUB-NAME for a name that it does not
// take, E-CONFIG-HUB-OFFLINE where nothing may be sent, E-CONFIG-HUB-ACCESS without a token.
void check_upload(const UploadTarget& target);

// Makes the Error(Config) for an answer other than 2xx to a request that writes: E-CONFIG-HUB-ACCESS where
// the token is unknown or may not write there; E-CONFIG-HUB-NOT-FOUND; else E-CONFIG-HUB-REFUSED.
Error upload_refusal(const UploadTarget& target, const io::HttpAnswer& answer);

}  // namespace tessera::hub
