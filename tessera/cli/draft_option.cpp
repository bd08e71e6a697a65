#include "tessera/cli/draft_option.h"

#include <string>

#include <CLI/CLI.hpp>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/generation/drafts.h"

namespace tessera::cli {

void add_draft_option(CLI::App& verb, int64_t& tokens) {
  verb.add_option(
          "--speculate-tokens", tokens,
          "Guess up to this many tokens of an answer where it repeats itself or the prompt, and check "
          "them together: the same answers, sooner; 0 = off")
      ->check(CLI::Range(int64_t{0}, generation::kMostDraftTokens));
}

void check_draft_option(int64_t tokens, int64_t prefill_tokens, int64_t pipeline_stages) {
  if (tokens == 0) return;
  if (prefill_tokens == 1) {
    throw Error(
        ErrorKind::Config, "USAGE",
        "--prefill-tokens 1 makes answers bit-identical in any batch, and --speculate-tokens does not")
        .hint("leave one of them out");
  }
  if (pipeline_stages > 1) {
    throw Error(ErrorKind::Config, "USAGE", "the stages of a pipeline cannot agree on drafts")
        .got("--pipeline-parallel-size " + std::to_string(pipeline_stages))
        .need("1 with --speculate-tokens");
  }
}

void tell_of_drafts(int64_t tokens, const models::CausalLM& model) {
  const std::string why = tokens > 0 ? generation::why_no_drafts(model) : "";
  if (!why.empty()) log::info("speculation is off: " + why);
}

}  // namespace tessera::cli
