// The chat templates that come with Tessera.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::text::jinja {

// The source, empty when there is no template of this name.
std::string_view builtin_source(std::string_view name);
std::vector<std::string> builtin_template_names();

struct NamedTemplate {
  std::string_view name, source;
};
// Those of model families, by name.
std::span<const NamedTemplate> family_templates();

}  // namespace tessera::text::jinja
