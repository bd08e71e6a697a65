#include "tessera/text/chat_template/builtins.h"

#include <algorithm>

namespace tessera::text::jinja {

namespace {

struct Builtin {
  std::string_view name;
  std::string_view file = name;  // templates/<file>.jinja
};

// The templates of model families write conversations of text as the family's own template does. Where a
// template has {% generation %}, that holds the assistant's words and the token that ends its turn.
constexpr Builtin kBuiltins[] = {
    {"alpaca"},  // It writes no preamble, and blank lines only between the parts.
    {"chatml"},
    {"llama3"},
    {"mistral"},  // It writes the system message before the words of the first user.
    {"aya", "cohere"},
    {"cohere"},
    {"deepseek_v2"},
    {"deepseek_v3"},  // It writes all system messages first, and leaves out reasoning.
    {"exaone"},       // It ends a user's turn with a line feed alone.
    // It writes empty reasoning before every answer; only with skip_think false does the last one show its
    // own.
    {"exaone4"},
    {"falcon_h1"},  // It leaves out a system message that is not the first message.
    {"gemma"},      // It refuses a system message.
    {"gemma3"},     // It writes the system message before the words of the first user.
    {"gemma3n", "gemma3"},
    // It leaves out reasoning in answers. The prompt opens and closes an empty channel of it unless
    // enable_thinking is true.
    {"gemma4"},
    {"gemma4_unified", "gemma4"},
    {"jamba"},  // It writes an empty system message if there is none.
    {"llama4"},
    {"metharme"},  // It writes a single EOS, at the end of the whole conversation.
    {"mistral_v1"},
    // The template writes the system message before the user message that is the last turn; if an answer is
    // last, it leaves the system message out.
    {"mistral_v2v3"},
    {"mistral_v3_tekken"},  // It writes what mistral_v2v3 writes, with other spaces.
    // It refuses a conversation without a system message, since the family's own default is a long text with
    // a date.
    {"mistral_v7_tekken"},
    {"nemotron_h"},
    {"phi_3"},  // It writes the prompt for an answer behind every user turn.
    {"phi_35"},
    {"phi_4"},     // It refuses a conversation without a system message, as mistral_v7_tekken does.
    {"qwen2_vl"},  // It writes conversations of text; images are not written.
    // It writes reasoning only in answers behind the last user message, and in the last answer even if it has
    // none.
    {"qwen3"},
    {"qwen3_5", "qwen3"},
    {"qwen_25"},
};

}  // namespace

std::string_view builtin_source(std::string_view name) {
  const auto* builtin = std::ranges::find(kBuiltins, name, &Builtin::name);
  if (builtin == std::end(kBuiltins)) return {};
  return std::ranges::find(template_files(), builtin->file, &TemplateFile::name)->source;
}

std::vector<std::string> builtin_template_names() {
  std::vector<std::string> names;
  for (const Builtin& builtin : kBuiltins) names.emplace_back(builtin.name);
  return names;
}

}  // namespace tessera::text::jinja
