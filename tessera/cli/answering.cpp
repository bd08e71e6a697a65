#include "tessera/cli/answering.h"

#include <algorithm>
#include <iostream>
#include <random>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "tessera/cli/cache_option.h"
#include "tessera/cli/draft_option.h"
#include "tessera/cli/launch.h"
#include "tessera/cli/rank_link.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/terminal_text.h"

namespace tessera::cli {

void add_sampling_options(CLI::App& verb, generation::SamplingOptions& sampling) {
  verb.add_option("--temperature", sampling.temperature, "0 = greedy");
  verb.add_option("--top-p", sampling.top_p,
                  "Nucleus sampling: keep the smallest set of tokens whose probabilities add up to this");
  verb.add_option("--top-k", sampling.top_k, "Sample from this many most likely tokens; 0 = all");
  verb.add_option("--min-p", sampling.min_p,
                  "Sample from tokens at least this fraction as likely as the most likely one; 0 = all");
  verb.add_option("--repetition-penalty", sampling.repetition_penalty,
                  "Make tokens that have already occurred less likely; 1 = off");
  verb.add_option("--presence-penalty", sampling.presence_penalty,
                  "Subtract this from the logits of tokens that the answer already has; -2 to 2, 0 = off");
  verb.add_option("--frequency-penalty", sampling.frequency_penalty,
                  "Subtract this once for each time that the answer already has the token; -2 to 2, 0 = off");
}

void add_answering_options(CLI::App& verb, CommandLine& line, AnsweringOptions& options) {
  line.add_model(verb, "--model", options.model,
                 "A Hugging Face model folder, a GGUF file, an adapter's folder (its base model is found "
                 "automatically), or the name of a model on the hub, which is downloaded")
      ->required();
  add_adapter_options(verb, line, options.adapters, kAdapterHelp);
  add_compute_options(verb, options.compute);
  add_rank_options(verb, options.ranks);
  verb.add_option("--system", options.system, "System message of the chat");
  verb.add_option("--chat-template", options.chat_template,
                  "chatml, llama3, mistral or alpaca; default: the model's");
  verb.add_option("--max-new-tokens", options.generate.max_new_tokens,
                  "Maximum length of an answer, in tokens")
      ->check(CLI::Range(1, 1 << 20));
  verb.add_option("--min-new-tokens", options.generate.biases.min_new_tokens,
                  "Let no end-of-text token end an answer before it has this many tokens")
      ->check(CLI::Range(0, 1 << 20));
  verb.add_option("--stop", options.stop_strings,
                  "Text at which an answer ends; it is not printed; repeatable")
      ->allow_extra_args(false)
      ->check(CLI::Validator([](const std::string& text) { return text.empty() ? "the text is empty" : ""; },
                             ""));
  add_sampling_options(verb, options.generate.sampling);
  add_bias_options(verb, options.biases);
  add_draft_option(verb, options.speculate_tokens);
  add_cache_option(verb, options.cache_type);
  verb.add_option("--seed", options.seed, "Random seed for sampling; default: a new one in every run")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 53));
}

void add_rank_options(CLI::App& verb, RankOptions& options) {
  verb.add_option("--nproc", options.nproc,
                  options.has_many_prompts
                      ? "Ranks to start on this machine; they share one model. If this is a multiple of the "
                        "product of the sizes below, each group of that many ranks holds a copy of the model "
                        "and answers its share of the prompts; default: as many as these sizes need"
                      : "Ranks to start on this machine; they share one model; default: as many as the "
                        "sizes below need")
      ->check(CLI::Range(1, 4096));
  verb.add_option(
          "--tensor-parallel-size", options.tensor_parallel,
          "Ranks that compute each layer together; default: the number of ranks / --pipeline-parallel-size")
      ->check(CLI::Range(1, 4096));
  verb.add_option("--pipeline-parallel-size", options.pipeline_parallel,
                  "Pipeline stages: each rank holds a part of the layers")
      ->check(CLI::Range(1, 4096));
  verb.add_option("--context-parallel-size", options.context_parallel,
                  "Only 1 is supported: a step generates one token per sequence")
      ->check(CLI::Range(1, 4096));
}

std::optional<int> start_ranks(const RankOptions& options, const CommandLine& line) {
  if (is_under_launcher(options.nproc)) return std::nullopt;
  const int64_t asked = std::max<int64_t>(1, options.tensor_parallel) * options.pipeline_parallel;
  const int64_t nproc = options.nproc > 0 ? options.nproc : asked;
  (void)generation::inference_dims(options, nproc);
  return relaunch(nproc, line.arguments);
}

generation::InferenceRank join_ranks(const RankOptions& options, at::Device device) {
  return {options, device, own_start_timeout_s(), tell_started};
}

void settle_sampling(AnsweringOptions& options) {
  generation::SamplingOptions& sampling = options.generate.sampling;
  sampling.check();
  if (options.seed) {
    sampling.seed = static_cast<uint64_t>(*options.seed);
  } else if (!sampling.is_greedy()) {
    sampling.seed = std::random_device()();
    log::info("sampling with --seed " + std::to_string(sampling.seed));
  }
}

void show_text(const std::string& text) {
  std::cout << text_for(STDOUT_FILENO, text) << std::flush;
  if (!std::cout) throw Error(ErrorKind::Storage, "OUTPUT", "cannot write to standard output");
}

}  // namespace tessera::cli
