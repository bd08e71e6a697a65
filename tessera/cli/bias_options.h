// The options that forbid or favour tokens of an answer.
#pragma once

#include <string>
#include <vector>

#include "tessera/generation/answer_biases.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace CLI {
class App;
}

namespace tessera::cli {

struct TypedBiases {
  std::vector<std::string> logit_bias;  // "ID=BIAS"
  std::vector<std::string> bad_words;
};

void add_bias_options(CLI::App& verb, TypedBiases& typed);
// Adds what was typed to `biases`. Throws Error(Config, "USAGE") for what is no bias, and for a bad word
// without a character that is no white space.
void settle_biases(const TypedBiases& typed, const text::Tokenizer& tokenizer,
                   generation::BiasOptions& biases);

}  // namespace tessera::cli
