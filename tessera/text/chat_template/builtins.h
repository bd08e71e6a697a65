// The chat templates that come with Tessera: the files templates/*.jinja, which the build embeds.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::text::jinja {

// Returns the source of the built-in template `name`, or "" when there is none.
std::string_view builtin_source(std::string_view name);
std::vector<std::string> builtin_template_names();

// A file templates/<name>.jinja.
struct TemplateFile {
  std::string_view name, source;
};
std::span<const TemplateFile> template_files();

}  // namespace tessera::text::jinja
