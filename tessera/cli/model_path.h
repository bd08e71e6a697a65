// Checks models that the command line names.
#pragma once

#include <CLI/CLI.hpp>

namespace tessera::cli {

// Returns a validator for CLI::Option::transform(). It leaves the path of a folder or file as it is, and
// turns the name of a model of the hub into its folder in the local cache. It refuses other names and says
// how to get the model.
CLI::Validator model_path();
// Returns the validator that accepts folders only.
CLI::Validator model_folder();

}  // namespace tessera::cli
