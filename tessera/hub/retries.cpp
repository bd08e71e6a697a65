#include "tessera/hub/retries.h"

#include <utility>

#include "tessera/core/error.h"

namespace tessera::hub {
namespace {

Error failure(Way way, const std::string& what, const io::HttpFault& fault) {
  const bool is_upload = way == Way::Up;
  std::string hint = "SSL_CERT_FILE sets the trusted certificates, HF_ENDPOINT the address of the hub";
  if (fault.is_unreachable) {
    hint = "HTTPS_PROXY sets a proxy, HF_ENDPOINT a mirror of the hub";
    if (!is_upload) hint += "; without a network, download on another machine and copy its cache";
  } else if (!fault.is_final) {
    hint = is_upload ? "the hub keeps for a while what it has received: the same command again sends the rest"
                     : "the received data are kept: the same command resumes from there";
  }
  return Error(ErrorKind::Storage, fault.is_unreachable ? "HUB-UNREACHABLE" : "HUB-BROKEN",
               (is_upload ? "cannot upload " : "cannot download ") + what + ": " + fault.what)
      .hint(hint);
}

}  // namespace

Retries::Retries(const Limits& limits, std::string what, const std::atomic<bool>& stop, Way way)
    : HttpRetries(
          limits, std::move(what),
          [way](const std::string& told, const io::HttpFault& fault) { return failure(way, told, fault); },
          stop) {}

}  // namespace tessera::hub
