// Requests to the hub that are tried again.
#pragma once

#include <atomic>
#include <string>

#include "tessera/hub/settings.h"
#include "tessera/io/http_retries.h"

namespace tessera::hub {

// The way that the bytes go, for the words of an error.
enum class Way { Down, Up };

// Throws E-STORAGE-HUB-UNREACHABLE where no connection was made, else E-STORAGE-HUB-BROKEN.
class Retries : public io::HttpRetries {
 public:
  Retries(const Limits& limits, std::string what, const std::atomic<bool>& stop, Way way = Way::Down);
};

}  // namespace tessera::hub
