// tessera chat
#include <csignal>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "tessera/cli/answering.h"
#include "tessera/cli/model_source.h"
#include "tessera/cli/prompts.h"
#include "tessera/cli/verbs.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/text/select_chat_template.h"

namespace tessera::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;

// While it lives, an interrupt from the keyboard sets `interrupted`, once: a second one ends the program.
class InterruptScope {
 public:
  InterruptScope() {
    interrupted = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = 1; };
    action.sa_flags = SA_RESETHAND | SA_RESTART;
    sigaction(SIGINT, &action, &before_);
  }
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  ~InterruptScope() { sigaction(SIGINT, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

class Conversation {
 public:
  Conversation(const AnsweringOptions& options, const at::TensorOptions& compute, const ModelSource& source)
      : options_(options),
        tokenizer_(source.tokenizer()),
        chat_template_(text::select_chat_template(options.chat_template, "", "", tokenizer_)),
        model_(source.load(compute)),
        stop_ids_(source.stop_ids(*model_)) {
    reset();
  }

  void reset() {
    messages_ = nlohmann::ordered_json::array();
    if (!options_.system.empty()) messages_.push_back(message("system", options_.system));
  }

  // Prints the answer as it grows, and keeps both in the conversation. An Error leaves it as it was.
  void answer(const std::string& question) {
    nlohmann::ordered_json messages = messages_;
    messages.push_back(message("user", question));
    AnswerText text(tokenizer_, options_.stop_strings);
    std::string whole;
    const auto show = [&](const std::string& more) {
      whole += more;
      if (!more.empty()) show_text(more);
    };
    models::GenerateOptions generate = options_.generate;
    generate.stop_ids = stop_ids_;
    generate.sampling.sequence = num_answers_++;
    const InterruptScope scope;
    generate.on_token = [&](int64_t id) {
      show(text.add(id));
      return !text.has_stopped() && interrupted == 0;
    };
    try {
      models::generate(*model_, encode_messages(tokenizer_, *chat_template_, messages, nullptr), generate);
    } catch (Error& error) {
      if (error.code() == "E-MODEL-LENGTH")
        error.hint("/reset forgets the conversation; or shorten the message");
      throw;
    }
    show(text.finish());
    show_text("\n");
    messages.push_back(message("assistant", whole));
    messages_ = std::move(messages);
  }

 private:
  const AnsweringOptions& options_;
  const text::Tokenizer& tokenizer_;
  std::shared_ptr<const text::ChatTemplate> chat_template_;
  std::shared_ptr<models::CausalLM> model_;
  std::vector<int64_t> stop_ids_;
  nlohmann::ordered_json messages_;
  uint64_t num_answers_ = 0;
};

// "/exti" is a slip, no message; "/usr/bin is ..." is one.
void refuse_unknown_command(const std::string& line) {
  if (line[0] != '/') return;
  const std::string word = line.substr(0, line.find_first_of(" \t"));
  if (word.find_first_not_of("abcdefghijklmnopqrstuvwxyz", 1) != std::string::npos) return;
  Error error(ErrorKind::Config, "COMMAND", "unknown command '" + word + "'");
  const std::string near = nearest_name(word, {"/reset", "/exit"});
  throw error.need("/reset or /exit, alone on the line")
      .hint((near.empty() ? "" : "did you mean '" + near + "'? ") +
            std::string("a space before the slash makes it a message"));
}

int run_chat(AnsweringOptions options) {
  settle_sampling(options);
  const at::TensorOptions compute = options.compute.resolved();
  const ModelSource source(options.model, options.adapter);
  Conversation conversation(options, compute, source);
  const bool is_terminal = isatty(STDIN_FILENO) == 1;
  if (is_terminal) log::info("/reset forgets the conversation; /exit or the end of the input ends it");
  while (true) {
    if (is_terminal) show_text("> ");
    std::string line;
    if (!read_input_line(line)) break;
    if (line == "/exit") return 0;
    if (line == "/reset") {
      conversation.reset();
    } else if (line.find_first_not_of(" \t") != std::string::npos) {
      try {
        refuse_unknown_command(line);
        const int64_t bad = find_invalid_utf8(line);
        if (bad >= 0)
          throw Error(ErrorKind::Config, "PROMPT", "the message is not UTF-8")
              .in("byte " + std::to_string(bad));
        conversation.answer(line);
      } catch (const Error& error) {
        // Someone at a terminal can go on; a script must know.
        if (!is_terminal || error.kind() == ErrorKind::Storage) throw;
        log::error(error.what());
      }
    }
  }
  if (is_terminal) show_text("\n");
  return 0;
}

}  // namespace

void add_chat(CLI::App& app, Action& action) {
  auto options = std::make_shared<AnsweringOptions>();
  CLI::App* verb = app.add_subcommand("chat", "Talk with a chat model, line by line");
  add_answering_options(*verb, *options);
  verb->footer(
      "Each line of standard input is a message; the model sees the whole conversation. /reset forgets it,\n"
      "/exit or the end of the input ends the program, and an interrupt ends an answer.");
  verb->callback([options, &action] { action = [options] { return run_chat(*options); }; });
}

}  // namespace tessera::cli
