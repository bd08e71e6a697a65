// The verbs of the program. Each function adds its subcommand; its callback sets `action`.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tessera::cli {

// The work of the chosen subcommand; returns the exit code.
using Action = std::function<int()>;

// The command line as typed, from which the launcher starts ranks.
struct CommandLine {
  std::vector<std::string> arguments;  // without the program's name
};

// Help of the flag of every verb that writes a file (io/output_file.h).
inline constexpr const char* kOverwriteHelp = "Replace an existing file, unless it is an input";

void add_train(CLI::App& app, const CommandLine& line, Action& action);
void add_evaluate(CLI::App& app, const CommandLine& line, Action& action);
void add_convert(CLI::App& app, Action& action);
void add_merge(CLI::App& app, Action& action);
void add_generate(CLI::App& app, const CommandLine& line, Action& action);
void add_chat(CLI::App& app, const CommandLine& line, Action& action);
void add_data(CLI::App& app, Action& action);
void add_recipe(CLI::App& app, Action& action);
void add_completion(CLI::App& app, Action& action);
void add_bench(CLI::App& app, const CommandLine& line, Action& action);
void add_bench_tokenize(CLI::App& bench, Action& action);
void add_bench_generate(CLI::App& bench, const CommandLine& line, Action& action);
void add_debug(CLI::App& app, Action& action);
void add_debug_schedule(CLI::App& debug, Action& action);
void add_doctor(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_environment(CLI::App& app, Action& action);

}  // namespace tessera::cli
