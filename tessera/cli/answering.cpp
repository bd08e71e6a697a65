#include "tessera/cli/answering.h"

#include <iostream>
#include <random>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tessera/cli/model_path.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/text/chat_encoding.h"

namespace tessera::cli {

void add_sampling_options(CLI::App& verb, models::SamplingOptions& sampling) {
  verb.add_option("--temperature", sampling.temperature, "0 = greedy");
  verb.add_option("--top-p", sampling.top_p, "Nucleus sampling");
  verb.add_option("--top-k", sampling.top_k, "0 = all tokens");
  verb.add_option("--min-p", sampling.min_p,
                  "Tokens at least this fraction as likely as the likeliest; 0 = all");
  verb.add_option("--repetition-penalty", sampling.repetition_penalty,
                  "Makes tokens that have occurred less likely; 1 = off");
}

void add_answering_options(CLI::App& verb, AnsweringOptions& options) {
  verb.add_option(
          "--model", options.model,
          "A Hugging Face model folder, a GGUF file, an adapter's folder, whose base is found, or the "
          "name of a model of the hub that is in the local cache")
      ->required()
      ->transform(model_path());
  verb.add_option("--adapter", options.adapter, "An adapter's folder to put on it")
      ->transform(model_folder());
  add_compute_options(verb, options.compute);
  add_rank_options(verb, options.ranks);
  verb.add_option("--system", options.system, "System message of the chat");
  verb.add_option("--chat-template", options.chat_template,
                  "chatml, llama3, mistral or alpaca; default: the model's");
  verb.add_option("--max-new-tokens", options.generate.max_new_tokens, "Longest answer")
      ->check(CLI::Range(1, 1 << 20));
  verb.add_option("--stop", options.stop_strings,
                  "Text that ends an answer and is not part of it; repeatable")
      ->allow_extra_args(false)
      ->check(CLI::Validator([](const std::string& text) { return text.empty() ? "the text is empty" : ""; },
                             ""));
  add_sampling_options(verb, options.generate.sampling);
  verb.add_option("--seed", options.seed, "Seed of the sampling; default: another in every run")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 53));
}

void settle_sampling(AnsweringOptions& options) {
  models::SamplingOptions& sampling = options.generate.sampling;
  sampling.check();
  if (options.seed) {
    sampling.seed = static_cast<uint64_t>(*options.seed);
  } else if (!sampling.is_greedy()) {
    sampling.seed = std::random_device()();
    log::info("sampling with --seed " + std::to_string(sampling.seed));
  }
}

nlohmann::ordered_json message(const std::string& role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

std::vector<int64_t> encode_messages(const text::Tokenizer& tokenizer,
                                     const text::ChatTemplate& chat_template,
                                     const nlohmann::ordered_json& messages,
                                     const nlohmann::ordered_json& tools) {
  const auto chat = chat_template.render(messages, tools, text::render_options(tokenizer, true));
  const std::vector<int32_t> ids = text::encode_chat(tokenizer, chat).ids;
  return {ids.begin(), ids.end()};
}

void show_text(const std::string& text) {
  std::cout << text << std::flush;
  if (!std::cout) throw Error(ErrorKind::Storage, "OUTPUT", "standard output cannot be written");
}

std::string AnswerText::finish() {
  std::string text = stop_.add(text_.finish());
  if (!stop_.has_stopped()) text += stop_.finish();
  return text;
}

}  // namespace tessera::cli
