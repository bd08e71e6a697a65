// Models that the command line names.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace tessera::cli {

// Says what an option that names a model takes beside a folder.
enum class Takes {
  Model,    // a GGUF file
  Folder,   // nothing
  Adapter,  // nothing, and the folder is an adapter's
};

// Has `option`, which sets `value`, take a path or the name of a model of the hub. Parsing refuses what can
// be neither. Returns the option.
CLI::Option* takes_model(CLI::Option* option, std::string& value, Takes takes);

// Forgets the options of a command line before this one, whose values are gone.
void forget_named_models();
// Replaces the names of the hub that the command line gave by their folders in the cache, and downloads what
// is not there (hub/fetch.h). Called once, when the command line has been parsed.
void fetch_named_models();

}  // namespace tessera::cli
