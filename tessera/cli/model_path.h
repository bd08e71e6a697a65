// Models that the command line names.
#pragma once

#include <CLI/CLI.hpp>

namespace tessera::cli {

// For CLI::Option::transform(): of a path that is there nothing changes, and the name of a model of the hub
// becomes its folder in the local cache. Others are refused, with how to get the model.
CLI::Validator model_path();
// The same of a folder alone.
CLI::Validator model_folder();

}  // namespace tessera::cli
