// The chat templates that come with Tessera.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::text::jinja {

// Returns the source of the built-in template `name`, or "" when there is none.
std::string_view builtin_source(std::string_view name);
std::vector<std::string> builtin_template_names();

struct NamedTemplate {
  std::string_view name, source;
};
// Returns the templates of model families, in the order of their names.
std::span<const NamedTemplate> family_templates();

}  // namespace tessera::text::jinja
