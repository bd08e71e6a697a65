// tessera generate
#include "tessera/models/common/generate.h"

#include <cstdio>
#include <iostream>
#include <map>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tessera/cli/load_for_inference.h"
#include "tessera/cli/verbs.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/process_stats.h"
#include "tessera/core/strings.h"
#include "tessera/data/chat_encoding.h"
#include "tessera/data/readers/parse_record.h"
#include "tessera/data/readers/record_reader.h"
#include "tessera/data/select_chat_template.h"
#include "tessera/data/tokenizer/tokenizer.h"

namespace tessera::cli {
namespace {

struct Options {
  std::string model, adapter, system, chat_template, prompts_file, dtype = "fp32";
  std::vector<std::string> prompts, more_prompts;
  int64_t batch_size = 8, prefill_tokens = 1024;
  bool is_chat = false, shows_stats = false;
  models::GenerateOptions generate;
};

// Prints the answers one after the other in the order of their prompts: the first that is not finished as it
// grows, later ones when their turn comes. Bytes that do not yet make whole characters are held back.
class OrderedAnswers {
 public:
  // With several prompts each answer stands under its own.
  explicit OrderedAnswers(const std::vector<std::string>& prompts)
      : prompts_(prompts), answers_(prompts.size()) {
    begin();
  }

  void add(size_t index, const std::string& bytes) {
    answers_[index].pending += bytes;
    if (index == current_) show_whole_characters();
  }
  void finish(size_t index) {
    answers_[index].is_finished = true;
    while (current_ < answers_.size() && answers_[current_].is_finished) {
      std::cout << answers_[current_].pending << std::endl;
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
    if (prompts_.size() > 1) std::cout << "> " << prompts_[current_] << "\n";
    show_whole_characters();
  }
  void show_whole_characters() {
    std::string& pending = answers_[current_].pending;
    const int64_t invalid = find_invalid_utf8(pending);
    const size_t whole = invalid < 0 ? pending.size() : static_cast<size_t>(invalid);
    // Four bytes are the longest character: more than that is not one that is being finished.
    const size_t ready = pending.size() - whole > 3 ? pending.size() : whole;
    std::cout << pending.substr(0, ready) << std::flush;
    pending.erase(0, ready);
  }

  const std::vector<std::string>& prompts_;
  std::vector<Answer> answers_;
  size_t current_ = 0;
};

// The "prompt" of every line of a file of JSON objects.
void read_prompts(const std::string& path, std::vector<std::string>& prompts) {
  const auto reader = data::open_json_lines(path);
  data::RawRecord record;
  while (reader->next(record)) {
    const auto object = data::parse_record(record, path);
    const auto found = object.find("prompt");
    if (found == object.end() || !found->is_string()) {
      throw Error(ErrorKind::Data, "PROMPTS", "the record has no prompt")
          .at(path, record.line, record.column)
          .need("an object with the string \"prompt\"");
    }
    prompts.push_back(found->get<std::string>());
  }
}

std::vector<std::string> gather_prompts(const Options& options) {
  std::vector<std::string> prompts = options.prompts;
  prompts.insert(prompts.end(), options.more_prompts.begin(), options.more_prompts.end());
  if (!options.prompts_file.empty()) read_prompts(options.prompts_file, prompts);
  if (prompts.empty()) {
    throw Error(ErrorKind::Config, "PROMPT", "there is no prompt")
        .need("a prompt, --prompt TEXT or a line of --prompts FILE");
  }
  for (const std::string& prompt : prompts) {
    const int64_t bad = find_invalid_utf8(prompt);
    if (bad < 0) continue;
    throw Error(ErrorKind::Config, "PROMPT", "the prompt is not UTF-8").in("byte " + std::to_string(bad));
  }
  return prompts;
}

std::vector<int64_t> encode_prompt(const Options& options, const data::Tokenizer& tokenizer,
                                   const data::ChatTemplate* chat_template, const std::string& prompt) {
  std::vector<int32_t> ids;
  if (options.is_chat) {
    auto messages = nlohmann::ordered_json::array();
    if (!options.system.empty()) messages.push_back({{"role", "system"}, {"content", options.system}});
    messages.push_back({{"role", "user"}, {"content", prompt}});
    const auto chat = chat_template->render(messages, nullptr, data::render_options(tokenizer, true));
    ids = data::encode_chat(tokenizer, chat).ids;
  } else {
    ids = tokenizer.encode(prompt, {.parse_special = true, .add_special_tokens = true});
  }
  return {ids.begin(), ids.end()};
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

int run_generate(const Options& options) {
  const std::vector<std::string> prompts = gather_prompts(options);
  options.generate.sampling.check();
  const data::Tokenizer tokenizer = data::Tokenizer::from_folder(options.model);
  std::shared_ptr<const data::ChatTemplate> chat_template;
  if (options.is_chat) chat_template = data::select_chat_template(options.chat_template, "", "", tokenizer);
  const auto model = load_for_inference(options.model, options.adapter, inference_dtype(options.dtype));

  models::Generator generator(
      *model, {.max_batch = options.batch_size, .max_prefill_tokens = options.prefill_tokens});
  OrderedAnswers answers(prompts);
  std::map<int64_t, size_t> open;
  for (size_t i = 0; i < prompts.size(); ++i) {
    models::GenerateOptions generate = options.generate;
    generate.on_token = [&, i](int64_t id) {
      if (!tokenizer.is_special(static_cast<int32_t>(id)))
        answers.add(i, tokenizer.token_bytes(static_cast<int32_t>(id)));
      return true;
    };
    open[generator.add({encode_prompt(options, tokenizer, chat_template.get(), prompts[i]), generate})] = i;
  }
  const Timer timer;
  int64_t new_tokens = 0;
  while (generator.step()) {
    std::erase_if(open, [&](const auto& entry) {
      const auto result = generator.take(entry.first);
      if (!result) return false;
      new_tokens += static_cast<int64_t>(result->token_ids.size());
      answers.finish(entry.second);
      return true;
    });
  }
  if (options.shows_stats) log_stats(generator.times(), new_tokens, timer.seconds());
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("generate", "Continue a text, or answer as a chat model");
  verb->add_option("--model", options->model, "A Hugging Face model folder")
      ->required()
      ->check(CLI::ExistingDirectory);
  verb->add_option("--adapter", options->adapter, "An adapter's folder to put on it")
      ->check(CLI::ExistingDirectory);
  verb->add_option("prompt", options->prompts, "The text, or the question; any number of them");
  // One value each, so that it does not take the prompts behind it.
  verb->add_option("--prompt", options->more_prompts, "The same as an option, any number of times")
      ->allow_extra_args(false);
  verb->add_option("--prompts", options->prompts_file, "A file of JSON lines, each an object with \"prompt\"")
      ->check(CLI::ExistingFile);
  verb->add_option("--batch-size", options->batch_size, "Prompts that are answered at once")
      ->check(CLI::Range(1, 4096));
  verb->add_option(
          "--prefill-tokens", options->prefill_tokens,
          "Prompts are read together up to this many tokens; 1 = each alone, which makes an answer the "
          "same to the last bit in any batch")
      ->check(CLI::Range(1, 1 << 20));
  add_inference_dtype(*verb, options->dtype);
  verb->add_flag("--chat", options->is_chat, "Treat each prompt as a user's message in the chat template");
  verb->add_option("--system", options->system, "System message for --chat");
  verb->add_option("--chat-template", options->chat_template,
                   "chatml, llama3, mistral or alpaca; default: the model's");
  verb->add_option("--max-new-tokens", options->generate.max_new_tokens, "Longest answer")
      ->check(CLI::Range(1, 1 << 20));
  verb->add_option("--temperature", options->generate.sampling.temperature, "0 = greedy");
  verb->add_option("--top-p", options->generate.sampling.top_p, "Nucleus sampling");
  verb->add_option("--top-k", options->generate.sampling.top_k, "0 = all tokens");
  verb->add_option("--seed", options->generate.sampling.seed, "Seed of the sampling");
  verb->add_flag("--stats", options->shows_stats, "Print tokens/s on standard error");
  verb->callback([options, &action] { action = [options] { return run_generate(*options); }; });
}

}  // namespace tessera::cli
