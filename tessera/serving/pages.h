// The page that the server shows in a browser.
#pragma once

#include <string_view>

namespace tessera::serving {

// Returns the page for chats: one HTML document that needs nothing but the routes of its server.
std::string_view chat_page();

}  // namespace tessera::serving
