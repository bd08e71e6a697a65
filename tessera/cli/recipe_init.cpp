// The verb `tessera recipe init`.
#include <filesystem>
#include <initializer_list>
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tessera/cli/verbs.h"
#include "tessera/config/new_recipe.h"
#include "tessera/config/scalar.h"
#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/io/file.h"
#include "tessera/io/output_file.h"

namespace tessera::cli {
namespace {

struct Options {
  std::string file;
  std::vector<std::string> assignments;
  bool all_keys = false, overwrite = false;
};

bool is_given(const Options& options, const std::string& key) {
  for (const std::string& assignment : options.assignments) {
    if (assignment.rfind(key + '=', 0) == 0 || assignment.rfind(key + '.', 0) == 0) return true;
  }
  return false;
}

// Returns key="text". Without the quotes the value would be read as YAML, in which `data #1` is `data`.
std::string assignment(const std::string& key, const std::string& text) {
  return key + '=' + nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Returns the user's answer on the terminal, or `otherwise` for an empty one or at the end of the input.
std::string ask(const std::string& question, const std::string& otherwise) {
  std::cerr << question << (otherwise.empty() ? "" : " [" + otherwise + "]") << ": " << std::flush;
  std::string answer;
  std::getline(std::cin, answer);
  return answer.empty() ? otherwise : answer;
}

// Asks until the answer is good, and says after each other one what is needed. Returns `otherwise` at the end
// of the input.
template <class IsGood>
std::string ask_until(const std::string& question, const std::string& otherwise, const char* need,
                      const IsGood& is_good) {
  for (;;) {
    const std::string answer = ask(question, otherwise);
    if (is_good(answer)) return answer;
    if (!std::cin) return otherwise;
    std::cerr << "  '" << answer << "' cannot be; need " << need << "\n";
  }
}

// Asks for the keys that training cannot do without, and for those that most recipes set.
void ask_for_rest(Options& options) {
  const auto ask_for = [&](const std::string& key, const std::string& question,
                           const std::string& otherwise) {
    if (is_given(options, key)) return std::string();
    const std::string answer = ask(question, otherwise);
    if (!answer.empty()) options.assignments.push_back(assignment(key, answer));
    return answer;
  };
  ask_for("base_model", "Model folder", "");
  if (!is_given(options, "datasets")) {
    const std::string path = ask("Data file or folder", "");
    if (!path.empty()) {
      options.assignments.push_back(assignment("datasets.0.path", path));
      const std::string type =
          ask("Type of its rows (chat_template, alpaca, completion, ...; none: token ids)",
              config::guess_dataset_type(path));
      if (!type.empty()) options.assignments.push_back(assignment("datasets.0.type", type));
    }
  }
  if (!is_given(options, "adapter") &&
      ask_until("Train an adapter (lora) or all weights (full)", "lora", "lora or full",
                [](const std::string& answer) { return answer == "lora" || answer == "full"; }) == "lora") {
    options.assignments.insert(options.assignments.end(), {"adapter=lora", "lora_target_linear=true"});
  }
  const bool has_adapter = is_given(options, "adapter");
  if (!is_given(options, "learning_rate")) {
    const auto is_rate = [](const std::string& answer) {
      const auto number = config::parse_number(answer);
      return number && *number >= 0.0 && *number <= 1e3;
    };
    options.assignments.push_back("learning_rate=" + ask_until("Peak learning rate",
                                                               has_adapter ? "2e-4" : "2e-5",
                                                               "a number, such as 2e-5", is_rate));
  }
  ask_for("output_dir", "Output folder", "./model-out");
}

// Files that the assignments name are what the recipe will read.
void check_output(const Options& options) {
  if (options.file == "-") return;
  std::vector<io::ResultInput> inputs;
  for (const std::string& assignment : options.assignments) {
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos) continue;
    std::string value = assignment.substr(equals + 1);
    if (value.size() > 1 && value.front() == '"') value = value.substr(1, value.size() - 2);
    if (std::error_code failed; std::filesystem::is_regular_file(value, failed))
      inputs.push_back({"what " + assignment.substr(0, equals) + " names", value});
  }
  io::check_output_file(
      {.path = options.file, .named_by = "the recipe", .inputs = inputs, .overwrites = options.overwrite});
}

// Gives the keys that training cannot do without a value to be replaced. Returns the keys.
std::string fill_in(Options& options) {
  std::vector<std::string> keys;
  const auto add = [&](const std::string& key, std::initializer_list<std::string> assignments) {
    if (is_given(options, key)) return;
    keys.push_back(key);
    options.assignments.insert(options.assignments.end(), assignments);
  };
  add("base_model", {"base_model=MODEL_FOLDER"});
  add("datasets", {"datasets.0.path=DATA_FILE", "datasets.0.type=chat_template"});
  add("learning_rate", {"learning_rate=2e-5"});
  return join(keys, ", ");
}

int init(Options options) {
  const bool is_printed = options.file == "-";
  // Comes before the questions, and again with what the answers name.
  check_output(options);
  std::string to_fill_in;
  if (isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0) {
    ask_for_rest(options);
  } else {
    to_fill_in = fill_in(options);
  }
  check_output(options);
  std::string text = config::new_recipe(options.assignments, options.all_keys);
  if (!to_fill_in.empty()) text = "# To be filled in: " + to_fill_in + "\n" + text;
  if (is_printed) {
    std::cout << text;
  } else {
    io::write_file_atomic(options.file, text);
    std::cerr << "wrote " << options.file << "; tessera recipe check " << options.file << " checks it\n";
  }
  return 0;
}

}  // namespace

void add_recipe_init(CLI::App& recipe, CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = recipe.add_subcommand("init",
                                         "Write a commented recipe. On a terminal, ask for required keys "
                                         "that are not given; otherwise leave them to be filled in");
  verb->add_option("file", options->file, "Recipe file to write; - prints the recipe")->required();
  verb->add_option("overrides", options->assignments, "Keys of the recipe, as key=value");
  verb->add_flag("--all-keys", options->all_keys, "List all keys, not only those that recipes usually set");
  verb->add_flag("--overwrite", options->overwrite, "Replace an existing recipe");
  verb->footer(
      "tessera recipe init r.yaml base_model=MODEL datasets.0.path=rows.jsonl datasets.0.type=alpaca "
      "learning_rate=2e-4");
  line.set_action(*verb, [options] { return init(*options); });
}

}  // namespace tessera::cli
