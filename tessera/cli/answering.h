// Parts that the verbs that make text share: their options, and the text of an answer as it grows.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tessera/cli/compute_options.h"
#include "tessera/cli/inference_ranks.h"
#include "tessera/models/common/generate.h"
#include "tessera/text/chat_template/chat_template.h"
#include "tessera/text/stop_strings.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace CLI {
class App;
}

namespace tessera::cli {

struct AnsweringOptions {
  std::string model, adapter, system, chat_template;
  ComputeOptions compute;
  RankOptions ranks;
  std::vector<std::string> stop_strings;
  std::optional<int64_t> seed;
  models::GenerateOptions generate;
};

void add_answering_options(CLI::App& verb, AnsweringOptions& options);
// Adds the options that say how a token is chosen, all but the seed.
void add_sampling_options(CLI::App& verb, models::SamplingOptions& sampling);

// Checks the sampling options. If a seed is needed and none is given, chooses one (another in every run) and
// tells it to the user. Throws Error(Config).
void settle_sampling(AnsweringOptions& options);

// Makes the message {"role": role, "content": content}.
nlohmann::ordered_json message(const std::string& role, const std::string& content);

// Returns the ids of a conversation (an array of messages), followed by the header of the answer.
std::vector<int64_t> encode_messages(const text::Tokenizer& tokenizer,
                                     const text::ChatTemplate& chat_template,
                                     const nlohmann::ordered_json& messages,
                                     const nlohmann::ordered_json& tools);

// Puts text on standard output at once. Throws Error(Storage) if that fails, so that no more text is made for
// nobody.
void show_text(const std::string& text);

// The text of one answer, up to a stop string.
class AnswerText {
 public:
  AnswerText(const text::Tokenizer& tokenizer, const std::vector<std::string>& stop_strings)
      : text_(tokenizer, true), stop_(stop_strings) {}

  // Returns the text that the token adds to the text that can be shown.
  std::string add(int64_t id) { return stop_.add(text_.add(static_cast<int32_t>(id))); }
  std::string finish();
  bool has_stopped() const { return stop_.has_stopped(); }

 private:
  text::TextStream text_;
  text::StopStrings stop_;
};

}  // namespace tessera::cli
