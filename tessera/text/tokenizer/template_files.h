// The files of a model folder that hold its named chat templates.
#pragma once

#include <string>
#include <vector>

namespace tessera::text {

// Lists them by their names below the folder, "additional_chat_templates/tool_use.jinja"; nothing where there
// are none.
std::vector<std::string> named_template_files(const std::string& folder);

}  // namespace tessera::text
