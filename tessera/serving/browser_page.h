// The reply that is a page for a browser.
#pragma once

#include <string>

#include "tessera/serving/http_server.h"

namespace tessera::serving {

// Returns the page, which may use its own script and style and the routes of this server, and nothing else.
HttpReply browser_page(std::string html);

}  // namespace tessera::serving
