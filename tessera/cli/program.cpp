#include "tessera/cli/program.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <unistd.h>

#include "tessera/cli/before_main.h"
#include "tessera/cli/help_format.h"
#include "tessera/cli/launch.h"
#include "tessera/cli/rank_link.h"
#include "tessera/cli/start_checks.h"
#include "tessera/cli/verbs.h"
#include "tessera/comm/bootstrap.h"
#include "tessera/config/load_recipe.h"
#include "tessera/core/cpu_features.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/log_detail.h"
#include "tessera/core/strings.h"
#include "tessera/core/version.h"
#include "tessera/device/cpu_allocator.h"
#include "tessera/io/mapped_file.h"

namespace tessera::cli {
namespace {

int64_t launched_rank = 0;
std::string path_of_program;

// Tells an error and ends the job. An error that all ranks meet is told in one line, by the first rank:
// another rank waits, and speaks only if the first has not ended the job by then.
int fail(ErrorKind kind, const std::string& text) {
  const auto info = comm::launch_info();
  const int code = exit_code(kind);
  if (info.size > 1 && info.rank > 0) {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    log::error(text + " (rank " + std::to_string(info.rank) + ")");
  } else {
    log::error(text);
  }
  tell_end(code);
  if (info.size > 1) comm::Bootstrap::abort(code);
  return code;
}

// Does what fail() does from a signal handler, with system calls alone, when bytes of a mapped file are
// missing; mostly they are missing for all ranks.
void end_by_fault(const char* line, int code) {
  if (launched_rank > 0) sleep(2);
  (void)!write(fileno(log::stream()), line, std::strlen(line));
  tell_end(code);
  _exit(code);
}

// Flushes standard output and fails if that is not possible: the output of a verb is its result, which a full
// disk must not cut off unseen.
int finish_output(int code) {
  if (code != 0) return code;
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good()) return code;
  return fail(ErrorKind::Storage, "error[E-STORAGE-OUTPUT]: standard output cannot be written");
}

int run(const Action& action) {
  try {
    const int code = finish_output(action());
    tell_end(code);
    return code;
  } catch (const Error& error) {
    return fail(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(ErrorKind::Memory, "error[E-MEMORY-ALLOCATION]: out of memory");
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) {
      return fail(ErrorKind::Internal, std::string("error[E-INTERNAL-SYSTEM]: ") + error.what());
    }
    return fail(ErrorKind::Config,
                "error[E-CONFIG-THREADS]: the system does not allow this process to start another thread. "
                "hint: raise the limits on processes (ulimit -u) and on address space (ulimit -v)");
  } catch (const std::exception& error) {
    // LibTorch's messages carry a stack trace behind their first line.
    const std::string text = first_line(error.what());
    const bool is_memory = text.find("allocate memory") != std::string::npos ||  // of the host
                           text.find("out of memory") != std::string::npos;      // of a GPU
    return is_memory ? fail(ErrorKind::Memory, "error[E-MEMORY-ALLOCATION]: out of memory: " + text)
                     : fail(ErrorKind::Internal, "error[E-INTERNAL-EXCEPTION]: " + text +
                                                     ". hint: this is a defect of tessera, please report it");
  }
}

// Returns a hint for a recipe's key that is written as a flag ("--learning_rate 1e-4" instead of
// learning_rate=1e-4); "" if `flag` is no key.
std::string key_as_override(const std::string& flag, const std::vector<std::string>& arguments) {
  const size_t equals = flag.find('=');
  std::string key = flag.substr(0, equals);
  key.erase(0, key.find_first_not_of('-'));
  std::replace(key.begin(), key.end(), '-', '_');
  const std::vector<std::string> known = config::known_keys();
  if (std::find(known.begin(), known.end(), key) == known.end()) return "";
  const auto given = std::find(arguments.begin(), arguments.end(), flag);
  std::string value = equals != std::string::npos ? flag.substr(equals + 1) : "VALUE";
  if (equals == std::string::npos && given != arguments.end() && given + 1 != arguments.end() &&
      (given + 1)->find('=') == std::string::npos && (given + 1)->rfind("--", 0) != 0) {
    value = *(given + 1);
  }
  return "write keys of the recipe without dashes: " + key + "=" + value;
}

// Returns what stands for a verb of Axolotl or LLaMA-Factory; "" for any other word.
std::string verb_instead_of(const std::string& word) {
  constexpr std::pair<std::string_view, std::string_view> kInstead[] = {
      {"preprocess",
       "tessera data prepare RECIPE prepares the rows, tessera data show RECIPE prints some of them"},
      {"inference", "tessera chat --model FOLDER, or tessera generate for many prompts"},
      {"merge-lora", "tessera merge ADAPTER OUTPUT"},
      {"merge_lora", "tessera merge ADAPTER OUTPUT"},
      {"merge-sharded-fsdp-weights",
       "the result of a run is already one folder; tessera convert turns a checkpoint-<step> into a folder"},
      {"fetch", "example recipes are in recipes/, and tessera recipe init writes a recipe"},
      {"quantize", "quantised weights are not supported yet"},
      {"vllm-serve", "tessera serve MODEL"},
      {"lm-eval", "tessera evaluate MODEL --tasks NAME"},
      {"push", "tessera upload FOLDER ORG/NAME"},
      {"export", "tessera merge ADAPTER OUTPUT, or tessera convert"},
      {"finetune", "tessera train RECIPE"},
      {"sft", "tessera train RECIPE"},
      {"config", "tessera recipe"},
  };
  for (const auto& [theirs, ours] : kInstead) {
    if (theirs == word) return std::string(ours);
  }
  return "";
}

// Fails if a verb that `tessera help VERB...` names does not exist; else returns 0.
int fail_unknown_help(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* at = &app;
  for (const std::string& word : words) {
    const CLI::App* next = nullptr;
    std::vector<std::string> names;
    for (const CLI::App* verb : at->get_subcommands({})) {
      names.push_back(verb->get_name());
      if (names.back() == word) next = verb;
    }
    if (next == nullptr) {
      Error error(ErrorKind::Config, "USAGE", "unknown subcommand '" + word + "'");
      const std::string nearest = nearest_name(word, names), instead = verb_instead_of(word);
      if (!names.empty()) error.need(join(names, ", "));
      error.hint(!instead.empty()  ? instead
                 : nearest.empty() ? "tessera help"
                                   : "did you mean '" + nearest + "'?");
      log::error(error.what());
      return exit_code(ErrorKind::Config);
    }
    at = next;
  }
  return 0;
}

// Tells what is wrong with a command line, in one line with the nearest flag or verb; returns the exit code.
int fail_usage(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& arguments) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  std::string path = at->get_name();
  for (const CLI::App* parent = at->get_parent(); parent != nullptr; parent = parent->get_parent()) {
    path = parent->get_name() + " " + path;
  }
  std::string text = error.what();
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  std::string hint = path + " --help";
  const auto extra = at->remaining();
  const bool needs_verb = at->get_require_subcommand_min() > 0;
  if (needs_verb && extra.empty()) text = "no subcommand given";
  if (needs_verb && !extra.empty()) {
    text = (extra.front().rfind('-', 0) == 0 ? "unknown option '" : "unknown subcommand '") + extra.front() +
           "'";
  }
  Error usage(ErrorKind::Config, "USAGE", text);
  if (!extra.empty()) {
    std::vector<std::string> names;
    for (const CLI::App* verb : at->get_subcommands({})) names.push_back(verb->get_name());
    for (const CLI::Option* option : at->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    const std::string nearest = nearest_name(extra.front(), names);
    if (!nearest.empty()) hint = "did you mean '" + nearest + "'? " + hint;
    const std::string override_hint = nearest.empty() ? key_as_override(extra.front(), arguments) : "";
    const bool takes_keys = at->get_option_no_throw("overrides") != nullptr;
    if (takes_keys && !override_hint.empty()) hint = override_hint;
    const std::string instead = needs_verb ? verb_instead_of(extra.front()) : "";
    if (!instead.empty()) hint = instead;
  }
  usage.hint(hint);
  log::error(usage.what());
  return exit_code(ErrorKind::Config);
}

// Replaces the verbs `help` and `version`: `tessera help environment` is `tessera environment`, any other
// `tessera help [VERB ...]` is `tessera [VERB ...] --help`, and `tessera version` is `tessera --version`.
std::vector<std::string> without_word_verbs(std::vector<std::string> arguments) {
  if (arguments.empty()) return arguments;
  if (arguments.size() == 2 && arguments[0] == "help" && arguments[1] == "environment") {
    arguments.erase(arguments.begin());
  } else if (arguments[0] == "help") {
    arguments.erase(arguments.begin());
    arguments.emplace_back("--help");
  } else if (arguments[0] == "version" && arguments.size() == 1) {
    arguments[0] = "--version";
  }
  return arguments;
}

// Gives every verb that does something the flags that say how much the log tells.
void add_log_flags(CLI::App& app) {
  const std::vector<CLI::App*> verbs = app.get_subcommands([](const CLI::App*) { return true; });
  for (CLI::App* verb : verbs) add_log_flags(*verb);
  if (!verbs.empty()) return;
  CLI::Option* quiet = app.add_flag_callback(
      "--quiet", [] { log::set_detail(log::Detail::Few); },
      "Print only warnings and errors, in addition to the results");
  CLI::Option* verbose = app.add_flag_callback(
      "--verbose", [] { log::set_detail(log::Detail::All); },
      "Log every step, and begin each line of the log with the time");
  quiet->excludes(verbose);
}

void describe(CLI::App& app) {
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default();
  app.formatter(std::make_shared<HelpFormat>());
  app.set_version_flag("-V,--version", std::string("tessera ") + program_version());
}

void add_verbs(CLI::App& app, CommandLine& line) {
  for (const auto add :
       {add_train,    add_evaluate,  add_convert,     add_merge,     add_upload, add_generate, add_classify,
        add_chat,     add_serve,     add_judge,       add_data,      add_recipe, add_estimate, add_plan,
        add_simulate, add_tune,      add_lr_range,    add_bench,     add_debug,  add_models,   add_doctor,
        add_report,   add_dashboard, add_environment, add_completion})
    add(app, line);
  add_log_flags(app);
  // These two are turned into flags before parsing; they are added so that the help lists them.
  app.add_subcommand("help", "Show the options of a subcommand: tessera help SUBCOMMAND");
  app.add_subcommand("version", "Show the version");
  // Subcommands would inherit a footer that is set before they are added.
  app.footer(
      "First steps: run tessera doctor, write a recipe (base_model, datasets, learning_rate), and "
      "run\ntessera train RECIPE.yaml --nproc 2.\nRun tessera help SUBCOMMAND for the options of a "
      "subcommand, and tessera help environment for the\nenvironment variables.");
}

// Parses the command line. Returns the exit code if no verb is to run: after help, the version or a mistake.
std::optional<int> parse(CLI::App& app, const std::vector<std::string>& typed) {
  if (!typed.empty() && typed[0] == "help") {
    const int code = fail_unknown_help(app, {typed.begin() + 1, typed.end()});
    if (code != 0) return code;
  }
  try {
    std::vector<std::string> arguments = without_word_verbs(typed);
    // The parser takes the arguments in reverse order.
    std::reverse(arguments.begin(), arguments.end());
    app.parse(arguments);
    return std::nullopt;
  } catch (const CLI::Success& asked) {
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return fail_usage(app, error, typed);
  }
}

// Lets a closed pipe or a full disk show as a failed write, which a log may survive and a save reports,
// instead of a signal that ends the process.
void ignore_write_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace

// [Note: order of start-up]
// 1. before_libraries() has run before the initialisers of the libraries (main.cpp). What those wrote to
//    standard error is kept back, and so would be any line of the program: words_of_libraries() gives the
//    stream back first of all.
// 2. use_packaged_mpi() sets variables that MPI reads at its first call, and that launched ranks inherit.
// 3. join_launching_process() exchanges the standard streams of a rank, so it comes before any output. Then
//    all ranks but the first are made quiet, and faults of mapped files get a handler, which tells the
//    starter.
// 4. The command line is parsed before anything is computed: a wrong one ends the program before any rank is
//    started.
// 5. run() turns exceptions into one line and an exit code, so everything that may throw is inside it. The
//    processor is checked and the allocator installed before the first tensor is made, the environment and
//    the limits are checked before the verb runs.
int run_program(const std::string& path, const std::vector<std::string>& arguments) {
  path_of_program = path;
  const std::vector<std::string> library_words = words_of_libraries();
  ignore_write_signals();
  use_packaged_mpi();
  launched_rank = comm::launch_info().rank;
  const bool is_launched = join_launching_process(launched_rank);
  log::set_quiet(launched_rank > 0);
  io::set_fault_end(end_by_fault);
  log::set_detail(log::Detail::Usual);

  CommandLine line(arguments);
  CLI::App app("Train and finetune large language models on many devices.", "tessera");
  describe(app);
  add_verbs(app, line);
  if (const auto code = parse(app, arguments)) return *code;
  // Verbs that only print end as usual when their reader leaves: `tessera data show R | head`.
  if (!app.got_subcommand("train") && !app.got_subcommand("bench") && !app.got_subcommand("serve") &&
      !app.got_subcommand("dashboard"))
    std::signal(SIGPIPE, SIG_DFL);
  // The verb that tells which values of a variable are right must not be refused for a wrong one.
  if (app.got_subcommand("environment")) return run(line.action());
  return run([&] {
    const std::string isa_note = guard_cpu_features();
    if (!isa_note.empty()) log::info(isa_note);
    install_cpu_allocator();
    at::set_num_interop_threads(1);
    // For a launched rank, the process that started it has checked the environment and the limits.
    if (!is_launched) check_start(library_words);
    line.fetch_models();
    return line.action()();
  });
}

void end_process(int exit_code) {
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  _exit(exit_code);
#else
  std::exit(exit_code);
#endif
}

const std::string& program_path() { return path_of_program; }

}  // namespace tessera::cli
