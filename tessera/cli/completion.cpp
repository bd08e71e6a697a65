// The verb `tessera completion`, which makes the scripts by which a shell completes the program's command
// line.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "tessera/cli/verbs.h"
#include "tessera/config/load_recipe.h"
#include "tessera/core/strings.h"

namespace tessera::cli {
namespace {

struct Word {
  std::string text, help;
};

// A verb, such as "/recipe/check", and the words that may follow it.
struct Verb {
  std::string path;
  std::vector<Word> verbs, flags;
  bool takes_keys = false;
};

// Returns the first line of a help text, without characters that a shell would interpret inside quotes.
std::string help_line(std::string text) {
  text = first_line(text);
  std::erase_if(text, [](char c) { return c == '\'' || c == '"' || c == '\\' || c == '`' || c == '$'; });
  return text;
}

void add_verbs(const CLI::App& app, const std::string& path, std::vector<Verb>& all) {
  Verb verb;
  verb.path = path;
  for (const CLI::App* child : app.get_subcommands({})) {
    verb.verbs.push_back({child->get_name(), help_line(child->get_description())});
  }
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames())
      verb.flags.push_back({"--" + name, help_line(option->get_description())});
  }
  verb.takes_keys = app.get_option_no_throw("overrides") != nullptr;
  all.push_back(verb);
  for (const CLI::App* child : app.get_subcommands({}))
    add_verbs(*child, path + '/' + child->get_name(), all);
}

std::string words_of(const Verb& verb) {
  std::vector<std::string> words;
  for (const auto* list : {&verb.verbs, &verb.flags}) {
    for (const Word& word : *list) words.push_back(word.text);
  }
  return join(words, " ");
}

std::string paths_of(const std::vector<Verb>& verbs) {
  std::vector<std::string> paths;
  for (const Verb& verb : verbs) {
    if (!verb.path.empty()) paths.push_back(verb.path);
  }
  return join(paths, "|");
}

// Returns the keys of a recipe as words to complete. A key with a number in its path stands for every item of
// its list.
std::string keys() { return join(config::known_keys(), "= ") + "="; }

// Returns the part of a script for bash or zsh that finds the verb among `words` and opens a `case` on it.
std::string verb_before(const std::string& words, const std::vector<Verb>& verbs) {
  return "  for word in " + words +
         "; do\n"
         "    case \"$verb/$word\" in\n"
         "      " +
         paths_of(verbs) +
         ") verb=\"$verb/$word\" ;;\n"
         "    esac\n"
         "  done\n"
         "  case \"$verb\" in\n";
}

std::string bash(const std::vector<Verb>& verbs) {
  std::string script =
      "# tessera completion bash > ~/.local/share/bash-completion/completions/tessera\n"
      "_tessera() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} verb= words= keys= word\n" +
      verb_before("\"${COMP_WORDS[@]:1:COMP_CWORD-1}\"", verbs);
  for (const Verb& verb : verbs) {
    script += "    '" + verb.path + "') words='" + words_of(verb) + "'";
    script += verb.takes_keys ? "; keys=1 ;;\n" : " ;;\n";
  }
  script +=
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
      "  if [[ -n $keys && -n $current && $current != -* ]]; then\n"
      "    local found=($(compgen -W '" +
      keys() +
      "' -- \"$current\"))\n"
      "    if ((${#found[@]} > 0)); then COMPREPLY+=(\"${found[@]}\"); compopt -o nospace 2> /dev/null; fi\n"
      "  fi\n"
      "}\n"
      "complete -o bashdefault -o default -F _tessera tessera\n";
  return script;
}

std::string zsh(const std::vector<Verb>& verbs) {
  std::string script =
      "#compdef tessera\n"
      "# tessera completion zsh > a folder of $fpath, as _tessera\n"
      "_tessera() {\n"
      "  local verb= word\n" +
      verb_before("${words[2,CURRENT-1]}", verbs);
  for (const Verb& verb : verbs) {
    script += "    '" + verb.path + "') compadd -- " + words_of(verb);
    if (verb.takes_keys) script += "; compadd -S '' -- " + keys();
    script += " ;;\n";
  }
  script +=
      "  esac\n"
      "  [[ -n $verb ]] && _files\n"
      "}\n"
      "if [[ $funcstack[1] == _tessera ]]; then _tessera \"$@\"; else compdef _tessera tessera; fi\n";
  return script;
}

std::string fish(const std::vector<Verb>& verbs) {
  std::string script =
      "# tessera completion fish > ~/.config/fish/completions/tessera.fish\n"
      "function __tessera_verb\n"
      "  set -l verb ''\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    switch \"$verb/$word\"\n"
      "      case";
  for (const Verb& verb : verbs) {
    if (!verb.path.empty()) script += " '" + verb.path + "'";
  }
  script +=
      "\n"
      "        set verb \"$verb/$word\"\n"
      "    end\n"
      "  end\n"
      "  echo \"$verb\"\n"
      "end\n";
  for (const Verb& verb : verbs) {
    const std::string line = "complete -c tessera -n 'test (__tessera_verb) = \"" + verb.path + "\"'";
    for (const Word& word : verb.verbs) script += line + " -f -a " + word.text + " -d '" + word.help + "'\n";
    for (const Word& word : verb.flags) {
      script += line + " -l " + word.text.substr(2) + " -d '" + word.help + "'\n";
    }
    if (verb.takes_keys) script += line + " -a '" + keys() + "'\n";
  }
  return script;
}

// Returns the script for `shell`. It completes verbs, flags and, for verbs that take key=value, the keys of a
// recipe; otherwise files.
std::string completion_script(const CLI::App& app, const std::string& shell) {
  std::vector<Verb> verbs;
  add_verbs(app, "", verbs);
  return shell == "bash" ? bash(verbs) : shell == "zsh" ? zsh(verbs) : fish(verbs);
}

}  // namespace

void add_completion(CLI::App& app, CommandLine& line) {
  auto shell = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand("completion", "Print a script for command-line completion in a shell");
  verb->add_option("shell", *shell, "The shell")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  verb->footer("bash: source <(tessera completion bash)");
  line.set_action(*verb, [shell, &app] {
    std::cout << completion_script(app, *shell);
    return 0;
  });
}

}  // namespace tessera::cli
