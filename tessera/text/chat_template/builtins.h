// The chat templates that come with Tessera.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::text::jinja {

// The source, empty when there is no template of this name.
std::string_view builtin_source(std::string_view name);
std::vector<std::string> builtin_template_names();

}  // namespace tessera::text::jinja
