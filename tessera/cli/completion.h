// Scripts by which a shell completes the program's command line.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace tessera::cli {

// The script for `shell`: "bash", "zsh" or "fish". It completes verbs, flags, and, where a verb takes
// key=value, the keys of a recipe; files otherwise.
std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace tessera::cli
