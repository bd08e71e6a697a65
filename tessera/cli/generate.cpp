// tessera generate
#include "tessera/models/common/generate.h"

#include <cstdio>
#include <iostream>
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
#include "tessera/data/select_chat_template.h"
#include "tessera/data/tokenizer/tokenizer.h"

namespace tessera::cli {
namespace {

struct Options {
  std::string model, adapter, system, chat_template;
  std::vector<std::string> prompts;
  bool is_chat = false, shows_stats = false;
  models::GenerateOptions generate;
};

// Prints the text as it grows, holding back bytes that do not yet make whole characters.
class TextStream {
 public:
  void add(const std::string& bytes) {
    pending_ += bytes;
    const int64_t invalid = find_invalid_utf8(pending_);
    const size_t whole = invalid < 0 ? pending_.size() : static_cast<size_t>(invalid);
    // Four bytes are the longest character: more than that is not one that is being finished.
    const size_t ready = pending_.size() - whole > 3 ? pending_.size() : whole;
    std::cout << pending_.substr(0, ready) << std::flush;
    pending_.erase(0, ready);
  }
  void finish() { std::cout << pending_ << std::endl; }

 private:
  std::string pending_;
};

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

int run_generate(const Options& options) {
  if (const int64_t bad = find_invalid_utf8(join(options.prompts, "")); bad >= 0) {
    throw Error(ErrorKind::Config, "PROMPT", "the prompt is not UTF-8").in("byte " + std::to_string(bad));
  }
  options.generate.sampling.check();
  const data::Tokenizer tokenizer = data::Tokenizer::from_folder(options.model);
  std::shared_ptr<const data::ChatTemplate> chat_template;
  if (options.is_chat) chat_template = data::select_chat_template(options.chat_template, "", "", tokenizer);
  const auto model = load_for_inference(options.model, options.adapter, at::kFloat);

  for (const std::string& prompt : options.prompts) {
    if (options.prompts.size() > 1) std::cout << "> " << prompt << "\n";
    const std::vector<int64_t> ids = encode_prompt(options, tokenizer, chat_template.get(), prompt);
    TextStream stream;
    models::GenerateOptions generate = options.generate;
    generate.on_token = [&](int64_t id) {
      if (!tokenizer.is_special(static_cast<int32_t>(id)))
        stream.add(tokenizer.token_bytes(static_cast<int32_t>(id)));
      return true;
    };
    const Timer timer;
    const models::Generation result = models::generate(*model, ids, generate);
    stream.finish();
    if (options.shows_stats) {
      const double seconds = timer.seconds();
      char text[128];
      std::snprintf(text, sizeof text, "%zu prompt + %zu new tokens in %.2f s (%.1f tokens/s)", ids.size(),
                    result.token_ids.size(), seconds, static_cast<double>(result.token_ids.size()) / seconds);
      log::info(text);
    }
  }
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
  verb->add_option("prompt", options->prompts, "The text, or the question; several are answered one by one")
      ->required();
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
