// Makes the scripts by which a shell completes the program's command line.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace tessera::cli {

// Returns the script for `shell` ("bash", "zsh" or "fish"). It completes verbs, flags and, for verbs that
// take key=value, the keys of a recipe; otherwise files.
std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace tessera::cli
