// The verb `tessera chat`.
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>

#include <ATen/ATen.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tessera/cli/answering.h"
#include "tessera/cli/draft_option.h"
#include "tessera/cli/message_input.h"
#include "tessera/cli/verbs.h"
#include "tessera/comm/flight_recorder.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/strings.h"
#include "tessera/core/utf8.h"
#include "tessera/device/device.h"
#include "tessera/generation/load_for_inference.h"
#include "tessera/generation/prompts.h"
#include "tessera/generation/session.h"
#include "tessera/text/answer_text.h"
#include "tessera/text/select_chat_template.h"

namespace tessera::cli {
namespace {

struct Command {
  const char* name;
  const char* help;
};
constexpr Command kCommands[] = {{"/help", "lists the commands"},
                                 {"/reset", "forgets the conversation"},
                                 {"/exit", "ends the program, like the end of the input"}};

volatile std::sig_atomic_t interrupted = 0;

// Tells the input of the first rank to the others. It may take any time, since someone types it.
class Listening {
 public:
  explicit Listening(const generation::InferenceRank& rank) : is_first_(rank.is_first()) {
    if (is_first_) input_.emplace();
    if (rank.is_alone()) return;
    group_ = rank.world().split(0, rank.world().rank(), "chat");
    group_->set_default_timeout(std::chrono::hours(24 * 365));
    // The first rank takes the interrupt, and its end ends all ranks.
    if (!is_first_) std::signal(SIGINT, SIG_IGN);
  }

  bool is_first() const { return is_first_; }
  // Tells whether someone types the messages. Collective.
  bool are_typed() const { return agreed(is_first_ && input_->is_typed()); }
  bool misses_editor() const { return is_first_ && input_->misses_editor(); }
  // Returns the next message; nullopt behind the last one. Collective.
  std::optional<std::string> next_message() const {
    std::string told;
    if (is_first_) {
      // Someone types: the ranks that wait for this one are not in a hang.
      const comm::flight::StorageScope is_long("read the next message");
      if (const auto message = input_->next()) told = "+" + *message;
    }
    const comm::flight::PatienceScope patience;
    if (group_ != nullptr) told = group_->all_gather_string(told)[0];
    return told.empty() ? std::nullopt : std::optional(told.substr(1));
  }
  // Returns the value of the first rank. Collective.
  bool agreed(bool value) const {
    if (group_ == nullptr) return value;
    const at::Tensor told = at::full({1}, value ? 1 : 0, on_host(at::kLong));
    group_->broadcast(told, 0);
    return told.item<int64_t>() != 0;
  }
  void show(const std::string& text) const {
    if (is_first_ && !text.empty()) show_text(text);
  }

 private:
  const bool is_first_;
  std::optional<MessageInput> input_;          // of the first rank
  std::shared_ptr<comm::Communicator> group_;  // null if there is only one rank
};

// While this object lives, an interrupt from the keyboard sets `interrupted`; a second one ends the program.
class InterruptScope {
 public:
  explicit InterruptScope(const Listening& listening) : is_first_(listening.is_first()) {
    interrupted = 0;
    if (!is_first_) return;
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = 1; };
    action.sa_flags = SA_RESETHAND | SA_RESTART;
    sigaction(SIGINT, &action, &before_);
  }
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  ~InterruptScope() {
    if (is_first_) sigaction(SIGINT, &before_, nullptr);
  }

 private:
  const bool is_first_;
  struct sigaction before_ {};
};

class Conversation {
 public:
  Conversation(const AnsweringOptions& options, const at::TensorOptions& compute,
               const generation::ModelSource& source, const generation::InferenceRank& rank,
               const Listening& listening)
      : options_(options),
        listening_(listening),
        encoder_{source.tokenizer(),
                 text::select_chat_template(options.chat_template, "", "", source.tokenizer()),
                 options.system},
        model_(source.load(compute, rank.mesh())),
        stop_ids_(source.stop_ids(*model_)),
        session_(*model_, rank.mesh(), {options.speculate_tokens, options.cache_type}) {
    if (rank.is_first()) tell_of_drafts(options.speculate_tokens, *model_);
  }

  void reset() {
    messages_ = nlohmann::ordered_json::array();
    session_.reset();
  }

  // Prints the answer as it grows, and adds question and answer to the conversation. An Error leaves the
  // conversation as it was.
  void answer(const std::string& question) {
    generation::Prompt prompt{question, messages_};
    prompt.messages.push_back(generation::message("user", question));
    text::AnswerText text(encoder_.tokenizer, options_.stop_strings);
    std::string whole;
    const auto show = [&](const std::string& more) {
      whole += more;
      listening_.show(more);
    };
    generation::GenerateOptions generate = options_.generate;
    generate.stop_ids = stop_ids_;
    generate.sampling.sequence = num_answers_++;
    const InterruptScope scope(listening_);
    generate.on_token = [&](int64_t id) {
      show(text.add(id));
      return !text.has_stopped() && !listening_.agreed(interrupted != 0);
    };
    try {
      session_.answer(encoder_.encode(prompt), generate);
    } catch (Error& error) {
      if (error.code() == "E-MODEL-LENGTH")
        error.hint("/reset forgets the conversation; or shorten the message");
      throw;
    }
    show(text.finish());
    listening_.show("\n");
    prompt.messages.push_back(generation::message("assistant", whole));
    messages_ = std::move(prompt.messages);
  }

 private:
  const AnsweringOptions& options_;
  const Listening& listening_;
  const generation::PromptEncoder encoder_;
  std::shared_ptr<models::CausalLM> model_;
  std::vector<int64_t> stop_ids_;
  generation::Session session_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  uint64_t num_answers_ = 0;
};

void list_commands() {
  for (const Command& command : kCommands) log::info(std::string(command.name) + " " + command.help);
  log::info("a backslash at the end of a line: the message continues on the next line");
}

// Refuses a line such as "/exti", which is a mistyped command; "/usr/bin is ..." is a message.
void refuse_unknown_command(const std::string& line) {
  if (line[0] != '/') return;
  const std::string word = line.substr(0, line.find_first_of(" \t\n"));
  if (word.find_first_not_of("abcdefghijklmnopqrstuvwxyz", 1) != std::string::npos) return;
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  Error error(ErrorKind::Config, "COMMAND", "unknown command '" + word + "'");
  const std::string near = nearest_name(word, names);
  throw error.need("/help, /reset or /exit, and nothing else on the line")
      .hint((near.empty() ? "" : "did you mean '" + near + "'? ") +
            std::string("put a space before the slash to send the line as a message"));
}

// Settles the sampling on all ranks; the first rank chooses the seed if none is given. Collective.
void settle_sampling_of_all(AnsweringOptions& options, const generation::InferenceRank& rank) {
  if (rank.is_first()) settle_sampling(options);
  if (rank.is_alone()) return;
  const std::string seed = std::to_string(options.generate.sampling.seed);
  options.generate.sampling.seed = std::stoull(rank.world().all_gather_string(seed)[0]);
}

int run_chat(AnsweringOptions options, const CommandLine& command_line) {
  const at::TensorOptions compute = options.compute.resolved();
  generation::check_cache_type(options.cache_type, compute.device());
  check_draft_option(options.speculate_tokens, 0, options.ranks.pipeline_parallel);
  if (const auto code = start_ranks(options.ranks, command_line)) return *code;
  const generation::InferenceRank rank = join_ranks(options.ranks, compute.device());
  settle_sampling_of_all(options, rank);
  const Listening listening(rank);
  const generation::ModelSource source(options.model, options.adapters.folder());
  settle_biases(options.biases, source.tokenizer(), options.generate.biases);
  Conversation conversation(options, compute, source, rank, listening);
  const bool is_terminal = listening.are_typed();
  if (is_terminal) log::info("/help lists the commands; /exit or the end of the input ends the program");
  if (listening.misses_editor()) log::info("for line editing: apt-get install libedit2");
  while (true) {
    const std::optional<std::string> asked = listening.next_message();
    if (!asked) break;
    const std::string& line = *asked;
    if (line == "/exit") return 0;
    if (line == "/reset") {
      conversation.reset();
    } else if (line == "/help") {
      list_commands();
    } else if (line.find_first_not_of(" \t\n") != std::string::npos) {
      try {
        refuse_unknown_command(line);
        const int64_t bad = find_invalid_utf8(line);
        if (bad >= 0)
          throw Error(ErrorKind::Config, "PROMPT", "the message is not UTF-8")
              .in("byte " + std::to_string(bad));
        conversation.answer(line);
      } catch (const Error& error) {
        // A user at a terminal can go on; a script must learn of the error.
        if (!is_terminal || error.kind() == ErrorKind::Storage) throw;
        if (listening.is_first()) log::error(error.what());
      }
    }
  }
  if (is_terminal) listening.show("\n");
  return 0;
}

}  // namespace

void add_chat(CLI::App& app, CommandLine& line) {
  auto options = std::make_shared<AnsweringOptions>();
  CLI::App* verb = app.add_subcommand("chat", "Chat with a model on the terminal or through a pipe");
  add_answering_options(*verb, line, *options);
  verb->footer(
      "Each line of standard input is a message; a backslash at its end continues the message on the "
      "next\nline. The model sees the whole conversation. /reset forgets the conversation, /exit or the end "
      "of the\ninput ends the program, /help lists the commands, and Ctrl-C ends an answer.");
  line.set_action(*verb, [options, &line] { return run_chat(*options, line); });
}

}  // namespace tessera::cli
