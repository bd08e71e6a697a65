// The files of a model folder that hold its named chat templates.
#pragma once

#include <string>
#include <vector>

namespace tessera::text {

// Returns the names of the template files below the folder, such as
// "additional_chat_templates/tool_use.jinja".
std::vector<std::string> named_template_files(const std::string& folder);

}  // namespace tessera::text
