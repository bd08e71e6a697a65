#include "tessera/cli/bias_options.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "tessera/config/scalar.h"
#include "tessera/core/error.h"
#include "tessera/text/bad_words.h"

namespace tessera::cli {
namespace {

generation::TokenBias read_bias(const std::string& text) {
  const size_t equals = text.find('=');
  const auto id = config::parse_integer(text.substr(0, equals));
  const auto delta =
      equals == std::string::npos ? std::nullopt : config::parse_number(text.substr(equals + 1));
  if (id.status == config::IntegerStatus::Ok && delta) return {id.value, *delta};
  throw Error(ErrorKind::Config, "USAGE", "--logit-bias is not a token's id and a number")
      .at("command line")
      .got(text)
      .need("ID=BIAS, such as 198=-100");
}

}  // namespace

void add_bias_options(CLI::App& verb, TypedBiases& typed) {
  verb.add_option("--logit-bias", typed.logit_bias,
                  "ID=BIAS adds -100 to 100 to the logit of the token with this id; repeatable")
      ->allow_extra_args(false);
  verb.add_option("--bad-words", typed.bad_words, "Text that must not occur in an answer; repeatable")
      ->allow_extra_args(false);
}

void settle_biases(const TypedBiases& typed, const text::Tokenizer& tokenizer,
                   generation::BiasOptions& biases) {
  for (const std::string& text : typed.logit_bias) {
    const generation::TokenBias bias = read_bias(text);
    if (std::ranges::find(biases.logit_bias, bias.id, &generation::TokenBias::id) !=
        biases.logit_bias.end()) {
      throw Error(ErrorKind::Config, "USAGE", "--logit-bias names a token twice")
          .at("command line")
          .got(std::to_string(bias.id));
    }
    biases.logit_bias.push_back(bias);
  }
  for (const std::string& text : typed.bad_words) {
    const auto words = text::tokens_of_bad_word(tokenizer, text);
    if (words.empty()) {
      throw Error(ErrorKind::Config, "USAGE",
                  "--bad-words needs a text that is not empty or white space alone")
          .at("command line");
    }
    biases.bad_words.insert(biases.bad_words.end(), words.begin(), words.end());
  }
}

}  // namespace tessera::cli
