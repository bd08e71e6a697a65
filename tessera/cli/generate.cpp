// tessera generate
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tessera/cli/answering.h"
#include "tessera/cli/model_source.h"
#include "tessera/cli/prompts.h"
#include "tessera/cli/verbs.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/strings.h"
#include "tessera/io/log_file.h"
#include "tessera/text/select_chat_template.h"

namespace tessera::cli {
namespace {

struct Options : AnsweringOptions {
  std::string prompts_file, output_file;
  std::vector<std::string> prompts, more_prompts;
  int64_t batch_size = 8, prefill_tokens = 1024;
  bool is_chat = false, shows_stats = false;
};

// The answers as JSON lines, each written as a whole when it is finished.
class AnswerFile {
 public:
  // Throws Error(Storage) for a path that cannot be written, Error(Config) for one that is taken.
  explicit AnswerFile(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0 && (!S_ISREG(status.st_mode) || status.st_size > 0)) {
      throw Error(
          ErrorKind::Config, "OUTPUT-USED",
          S_ISREG(status.st_mode) ? "the file of --output is there already" : "--output is no regular file")
          .in(path)
          .hint("name another file, or remove it");
    }
    file_.emplace(path);
  }

  void write(size_t index, const Prompt& prompt, const std::string& text, const char* finish_reason,
             int64_t prompt_tokens, int64_t new_tokens) {
    nlohmann::ordered_json line = {{"index", index}};
    if (prompt.messages.is_null()) {
      line["prompt"] = prompt.text;
    } else {
      line["messages"] = prompt.messages;
    }
    line["text"] = text;
    line["finish_reason"] = finish_reason;
    line["prompt_tokens"] = prompt_tokens;
    line["completion_tokens"] = new_tokens;
    if (file_->append(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n"))
      return;
    throw Error(ErrorKind::Storage, "WRITE", "an answer cannot be written")
        .in(file_->path())
        .hint("the answers before it are in the file");
  }

 private:
  std::optional<io::LogFile> file_;
};

// Prints the answers one after the other in the order of their prompts: the first that is not finished as it
// grows, later ones when their turn comes.
class OrderedAnswers {
 public:
  // With several prompts each answer stands under its own.
  explicit OrderedAnswers(const std::vector<Prompt>& prompts) : prompts_(prompts), answers_(prompts.size()) {
    begin();
  }

  void add(size_t index, const std::string& text) {
    answers_[index].pending += text;
    if (index == current_) show();
  }
  void finish(size_t index) {
    answers_[index].is_finished = true;
    while (current_ < answers_.size() && answers_[current_].is_finished) {
      show_text(answers_[current_].pending + "\n");
      answers_[current_] = {};
      ++current_;
      begin();
    }
  }

 private:
  struct Answer {
    std::string pending;
    bool is_finished = false;
  };

  void begin() {
    if (current_ >= answers_.size()) return;
    if (prompts_.size() > 1) show_text("> " + prompts_[current_].text + "\n");
    show();
  }
  void show() {
    std::string& pending = answers_[current_].pending;
    if (!pending.empty()) show_text(pending);
    pending.clear();
  }

  const std::vector<Prompt>& prompts_;
  std::vector<Answer> answers_;
  size_t current_ = 0;
};

std::vector<Prompt> gather_prompts(const Options& options) {
  std::vector<Prompt> prompts;
  const auto append = [&](std::vector<Prompt> more) {
    prompts.insert(prompts.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  };
  for (const std::string& text : options.prompts) {
    append(text == "-" ? read_prompt_lines() : std::vector<Prompt>{{text, nullptr, nullptr, ""}});
  }
  for (const std::string& text : options.more_prompts) prompts.push_back({text, nullptr, nullptr, ""});
  if (!options.prompts_file.empty()) append(read_prompt_file(options.prompts_file));
  if (prompts.empty()) {
    throw Error(ErrorKind::Config, "PROMPT", "there is no prompt")
        .need("a prompt, --prompt TEXT, a line of --prompts FILE, or - for the lines of standard input");
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].place.empty() && prompts.size() > 1) prompts[i].place = "prompt " + std::to_string(i + 1);
    const int64_t bad = find_invalid_utf8(prompts[i].text);
    if (bad < 0) continue;
    Error error(ErrorKind::Config, "PROMPT", "the prompt is not UTF-8 at byte " + std::to_string(bad));
    throw error.in(prompts[i].place);
  }
  return prompts;
}

// Of the first rank, to which standard input belongs: all ranks answer the same prompts with the same seed.
std::vector<Prompt> prompts_of_first(Options& options, comm::Communicator& world) {
  std::vector<Prompt> prompts;
  std::string told;
  if (world.rank() == 0) {
    prompts = gather_prompts(options);
    settle_sampling(options);
    if (world.size() == 1) return prompts;
    nlohmann::ordered_json json = {{"seed", options.generate.sampling.seed}, {"prompts", nullptr}};
    for (const Prompt& prompt : prompts)
      json["prompts"].push_back({prompt.text, prompt.messages, prompt.tools, prompt.place});
    told = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }
  const auto json = nlohmann::ordered_json::parse(world.all_gather_string(told)[0]);
  if (world.rank() == 0) return prompts;
  options.generate.sampling.seed = json["seed"];
  for (const auto& prompt : json["prompts"]) prompts.push_back({prompt[0], prompt[1], prompt[2], prompt[3]});
  return prompts;
}

// `chat_template` is null where no prompt is a conversation.
std::vector<int64_t> encode_prompt(const Options& options, const text::Tokenizer& tokenizer,
                                   const text::ChatTemplate* chat_template, const Prompt& prompt) {
  if (!options.is_chat && prompt.messages.is_null()) {
    const auto ids = tokenizer.encode(prompt.text, {.parse_special = true, .add_special_tokens = true});
    return {ids.begin(), ids.end()};
  }
  auto messages = nlohmann::ordered_json::array();
  const bool has_system = !prompt.messages.is_null() && prompt.messages[0]["role"] == "system";
  if (!options.system.empty() && !has_system) messages.push_back(message("system", options.system));
  if (prompt.messages.is_null()) messages.push_back(message("user", prompt.text));
  for (const nlohmann::ordered_json& given : prompt.messages) messages.push_back(given);
  return encode_messages(tokenizer, *chat_template, messages, prompt.tools);
}

void log_stats(const models::GenerationTimes& times, int64_t new_tokens, double seconds) {
  const auto rate = [](int64_t tokens, double s) { return s > 0.0 ? static_cast<double>(tokens) / s : 0.0; };
  char text[256];
  std::snprintf(text, sizeof text,
                "%lld prompt + %lld new tokens in %.2f s (%.1f tokens/s); prefill %.1f, decode %.1f tokens/s",
                static_cast<long long>(times.prefill_tokens), static_cast<long long>(new_tokens), seconds,
                rate(new_tokens, seconds), rate(times.prefill_tokens, times.prefill_s),
                rate(times.decode_tokens, times.decode_s));
  log::info(text);
}

int run_generate(Options options, const CommandLine& line) {
  const at::TensorOptions compute = options.compute.resolved();
  if (const auto code = start_ranks(options.ranks, line)) return *code;
  const InferenceRank rank(options.ranks, compute.device());
  const bool is_first = rank.is_first();
  const std::vector<Prompt> prompts = prompts_of_first(options, rank.world());
  const bool any_chat =
      options.is_chat || std::any_of(prompts.begin(), prompts.end(),
                                     [](const Prompt& prompt) { return !prompt.messages.is_null(); });
  if (!any_chat && (!options.system.empty() || !options.chat_template.empty())) {
    throw Error(ErrorKind::Config, "USAGE",
                std::string(options.system.empty() ? "--chat-template" : "--system") +
                    " says how to write a chat, and no prompt is one")
        .hint("add --chat, or give prompts with \"messages\"");
  }
  std::optional<AnswerFile> file;
  if (is_first && !options.output_file.empty()) file.emplace(options.output_file);
  const ModelSource source(options.model, options.adapter);
  const text::Tokenizer& tokenizer = source.tokenizer();
  std::shared_ptr<const text::ChatTemplate> chat_template;
  if (any_chat) chat_template = text::select_chat_template(options.chat_template, "", "", tokenizer);
  const auto model = source.load(compute, rank.mesh());

  models::Generator generator(
      *model, {.max_batch = options.batch_size, .max_prefill_tokens = options.prefill_tokens});
  std::optional<OrderedAnswers> answers;
  if (is_first && !file) answers.emplace(prompts);
  std::vector<std::string> whole(prompts.size());  // for the file
  std::vector<int64_t> prompt_tokens(prompts.size());
  const auto show = [&](size_t index, const std::string& more) {
    if (answers) answers->add(index, more);
    if (file) whole[index] += more;
  };
  std::vector<AnswerText> texts;
  std::map<int64_t, size_t> open;
  for (size_t i = 0; i < prompts.size(); ++i) {
    texts.emplace_back(tokenizer, options.stop_strings);
    models::GenerateOptions generate = options.generate;
    generate.stop_ids = source.stop_ids(*model);
    generate.sampling.sequence = i;
    generate.on_token = [&, i](int64_t id) {
      show(i, texts[i].add(id));
      return !texts[i].has_stopped();
    };
    try {
      auto ids = encode_prompt(options, tokenizer, chat_template.get(), prompts[i]);
      prompt_tokens[i] = static_cast<int64_t>(ids.size());
      open[generator.add({std::move(ids), generate})] = i;
    } catch (Error& error) {
      if (!prompts[i].place.empty()) error.within(prompts[i].place);
      throw;
    }
  }
  const Timer timer;
  int64_t new_tokens = 0;
  while (generator.step()) {
    std::erase_if(open, [&](const auto& entry) {
      const auto result = generator.take(entry.first);
      if (!result) return false;
      const size_t index = entry.second;
      const auto num_tokens = static_cast<int64_t>(result->token_ids.size());
      new_tokens += num_tokens;
      show(index, texts[index].finish());
      if (answers) answers->finish(index);
      if (file) {
        // A callback ends an answer at a stop string.
        const bool is_cut = result->reason == models::FinishReason::Length;
        file->write(index, prompts[index], whole[index], is_cut ? "length" : "stop", prompt_tokens[index],
                    num_tokens);
        whole[index] = {};
      }
      return true;
    });
  }
  if (is_first && options.shows_stats) log_stats(generator.times(), new_tokens, timer.seconds());
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, const CommandLine& line, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("generate", "Continue a text, or answer as a chat model");
  add_answering_options(*verb, *options);
  verb->add_option(
      "prompt", options->prompts,
      "The text, or the question; any number of them; - reads one from every line of standard input");
  // One value each, so that it does not take the prompts behind it.
  verb->add_option("--prompt", options->more_prompts, "The same as an option, any number of times")
      ->allow_extra_args(false);
  verb->add_option(
          "--prompts", options->prompts_file,
          "A file of JSON lines, each an object with \"prompt\" or \"messages\"; - is standard input")
      ->check(CLI::ExistingPath | CLI::IsMember({"-"}));
  verb->add_option("--output", options->output_file,
                   "Write the answers into this new file of JSON lines instead of printing them");
  verb->add_option("--batch-size", options->batch_size, "Prompts that are answered at once")
      ->check(CLI::Range(1, 4096));
  verb->add_option(
          "--prefill-tokens", options->prefill_tokens,
          "Prompts are read together up to this many tokens; 1 = each alone, which makes an answer the "
          "same to the last bit in any batch")
      ->check(CLI::Range(1, 1 << 20));
  verb->add_flag("--chat", options->is_chat, "Treat each prompt as a user's message in the chat template");
  verb->add_flag("--stats", options->shows_stats, "Print tokens/s on standard error");
  verb->callback(
      [options, line, &action] { action = [options, line] { return run_generate(*options, line); }; });
}

}  // namespace tessera::cli
