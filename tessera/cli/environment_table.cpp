// The verb `tessera environment`, which is also `tessera help environment`.
#include <cstdio>

#include <CLI/CLI.hpp>

#include "tessera/cli/verbs.h"
#include "tessera/core/environment.h"

namespace tessera::cli {
namespace {

int show_environment() {
  std::printf("Environment variables. A name that ends in * stands for all variables with this prefix.\n");
  for (const environment::Variable& variable : environment::variables()) {
    std::printf("\n%s: %s\n", std::string(variable.name).c_str(), std::string(variable.meaning).c_str());
    std::printf("  values     %s\n", variable.values_text().c_str());
    std::printf("  if not set %s\n", std::string(variable.otherwise).c_str());
  }
  return 0;
}

}  // namespace

void add_environment(CLI::App& app, CommandLine& line) {
  CLI::App* verb =
      app.add_subcommand("environment", "Show the environment variables that change how Tessera runs");
  line.set_action(*verb, show_environment);
}

}  // namespace tessera::cli
