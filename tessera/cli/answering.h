// Parts that the verbs that make text share: their options, and the start of their ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/cli/adapters.h"
#include "tessera/cli/bias_options.h"
#include "tessera/cli/compute_options.h"
#include "tessera/cli/verbs.h"
#include "tessera/generation/answers.h"
#include "tessera/generation/inference_ranks.h"

namespace tessera::cli {

struct RankOptions : generation::InferenceSizes {
  int64_t nproc = 0;  // 0: as many as the sizes say
};

struct AnsweringOptions : generation::AnswerOptions {
  AdapterOptions adapters;
  std::string model, system, chat_template;
  ComputeOptions compute;
  RankOptions ranks;
  std::optional<int64_t> seed;
  TypedBiases biases;
  int64_t speculate_tokens = 0;
  generation::CacheType cache_type = generation::CacheType::Model;
};

void add_answering_options(CLI::App& verb, CommandLine& line, AnsweringOptions& options);
// Adds the options that say how a token is chosen, all but the seed.
void add_sampling_options(CLI::App& verb, generation::SamplingOptions& sampling);
void add_rank_options(CLI::App& verb, RankOptions& options);

// If this process is to start the ranks, does so and returns the exit code of their job; else returns
// nullopt. Throws the errors of inference_dims() and launch().
std::optional<int> start_ranks(const RankOptions& options, const CommandLine& line);
// Makes this process one of the ranks that were started. Collective.
generation::InferenceRank join_ranks(const RankOptions& options, at::Device device);

// Checks the sampling options. If a seed is needed and none is given, chooses one (another in every run) and
// tells it to the user. Throws Error(Config).
void settle_sampling(AnsweringOptions& options);

// Puts text on standard output at once, made safe if that is a terminal (core/terminal_text.h). Throws
// Error(Storage) if that fails, so that no more text is made for nobody.
void show_text(const std::string& text);

}  // namespace tessera::cli
