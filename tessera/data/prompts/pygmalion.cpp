#include "tessera/data/prompts/pygmalion.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/utf8.h"
#include "tessera/data/prompts/fields.h"
#include "tessera/data/prompts/text_format.h"

namespace tessera::data {

PygmalionPrompt::PygmalionPrompt(const PromptContext& context)
    : tokenizer_(*context.tokenizer), prefix_size_(tokenizer_.encode("<|model|>").size()) {}

void PygmalionPrompt::tokenize(const PromptRecord& record, std::vector<Row>& rows) const {
  constexpr std::string_view kStart = "\n<START>";
  Row row;
  for (const auto& message : required_array(record.fields, "conversations")) {
    if (!message.is_object()) {
      throw Error(ErrorKind::Data, "FIELD-TYPE", "an element of 'conversations' is not an object")
          .got(message.type_name())
          .need("{role, value}");
    }
    const std::string& role = required_text(message, "role");
    std::string value = required_text(message, "value");
    const bool is_system = role == "system", is_bot = role == "bot";
    if (!is_system && !is_bot && role != "human") {
      throw Error(ErrorKind::Data, "UNKNOWN-ROLE", "unknown role")
          .got("'" + role + "'")
          .need("system, human or bot");
    }
    if (is_system && value.ends_with(kStart)) value.resize(value.size() - kStart.size());
    MarkedText text;
    text.add_scaffold(is_system ? "<|system|>Persona: " : is_bot ? "<|model|> " : "<|user|> ");
    text.add_content(std::string(strip_spaces(value)));
    const std::vector<int32_t> ids = encode_marked(tokenizer_, text, {.bos = is_system, .eos = is_bot});
    const auto border = ids.begin() + static_cast<ptrdiff_t>(is_bot ? std::min(prefix_size_, ids.size()) : 0);
    append_ids(row, {ids.begin(), border}, false);
    append_ids(row, {border, ids.end()}, is_bot);
  }
  rows.push_back(std::move(row));
}

std::vector<int32_t> PygmalionPrompt::end_tokens() const { return eos_tokens(tokenizer_); }

}  // namespace tessera::data
