// The option --speculate-tokens of the verbs that make text.
#pragma once

#include <cstdint>

#include "tessera/models/common/causal_lm.h"

namespace CLI {
class App;
}

namespace tessera::cli {

// `tokens` is GeneratorOptions::max_draft_tokens.
void add_draft_option(CLI::App& verb, int64_t& tokens);
// Refuses drafts where results are to have the same bits in any batch, and where ranks may see different
// parts of a text, with Error(Config, "USAGE").
void check_draft_option(int64_t tokens, int64_t prefill_tokens, int64_t pipeline_stages);
// Tells the user if drafts were asked for and the model has none.
void tell_of_drafts(int64_t tokens, const models::CausalLM& model);

}  // namespace tessera::cli
