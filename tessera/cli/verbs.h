// The verbs of the program. Each function adds its subcommand, and says to the command line what that does.
#pragma once

#include "tessera/cli/command_line.h"

namespace tessera::cli {

// Help of the flag of every verb that writes a file (io/output_file.h).
inline constexpr const char* kOverwriteHelp = "Replace an existing file, unless it is an input";

void add_train(CLI::App& app, CommandLine& line);
void add_evaluate(CLI::App& app, CommandLine& line);
void add_convert(CLI::App& app, CommandLine& line);
void add_merge(CLI::App& app, CommandLine& line);
void add_upload(CLI::App& app, CommandLine& line);
void add_generate(CLI::App& app, CommandLine& line);
void add_serve(CLI::App& app, CommandLine& line);
void add_judge(CLI::App& app, CommandLine& line);
void add_classify(CLI::App& app, CommandLine& line);
void add_chat(CLI::App& app, CommandLine& line);
void add_data(CLI::App& app, CommandLine& line);
void add_recipe(CLI::App& app, CommandLine& line);
void add_recipe_init(CLI::App& recipe, CommandLine& line);
void add_completion(CLI::App& app, CommandLine& line);
void add_bench(CLI::App& app, CommandLine& line);
void add_estimate(CLI::App& app, CommandLine& line);
void add_plan(CLI::App& app, CommandLine& line);
void add_simulate(CLI::App& app, CommandLine& line);
void add_tune(CLI::App& app, CommandLine& line);
void add_lr_range(CLI::App& app, CommandLine& line);
void add_bench_tokenize(CLI::App& bench, CommandLine& line);
void add_bench_generate(CLI::App& bench, CommandLine& line);
void add_debug(CLI::App& app, CommandLine& line);
void add_debug_schedule(CLI::App& debug, CommandLine& line);
void add_debug_compare(CLI::App& debug, CommandLine& line);
void add_models(CLI::App& app, CommandLine& line);
void add_doctor(CLI::App& app, CommandLine& line);
void add_dashboard(CLI::App& app, CommandLine& line);
void add_report(CLI::App& app, CommandLine& line);
void add_environment(CLI::App& app, CommandLine& line);

}  // namespace tessera::cli
