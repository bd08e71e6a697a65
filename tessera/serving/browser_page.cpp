#include "tessera/serving/browser_page.h"

#include <utility>

namespace tessera::serving {

HttpReply browser_page(std::string html) {
  return {200,
          std::move(html),
          "text/html; charset=utf-8",
          {{"Content-Security-Policy",
            "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
           {"X-Content-Type-Options", "nosniff"},
           {"Referrer-Policy", "no-referrer"},
           {"Cache-Control", "no-cache"}}};
}

}  // namespace tessera::serving
