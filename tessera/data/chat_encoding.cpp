#include "tessera/data/chat_encoding.h"

#include <optional>
#include <string>
#include <vector>

namespace tessera::data {

Encoding encode_chat(const Tokenizer& tokenizer, const RenderedChat& chat) {
  std::string text;
  std::vector<ByteSpan> contents;
  for (const RenderedSegment& segment : chat.segments) {
    const auto begin = static_cast<int64_t>(text.size());
    text += segment.text;
    if (segment.is_content && !segment.text.empty())
      contents.push_back({begin, static_cast<int64_t>(text.size())});
  }
  return tokenizer.encode_with_spans(text, {.parse_special = true, .plain = contents});
}

RenderOptions render_options(const Tokenizer& tokenizer, bool add_generation_prompt) {
  const auto text = [&](std::optional<int32_t> id) {
    return id ? tokenizer.id_to_token(*id) : std::string();
  };
  RenderOptions options;
  options.add_generation_prompt = add_generation_prompt;
  options.bos_token = text(tokenizer.bos_id());
  options.eos_token = text(tokenizer.eos_id());
  options.pad_token = text(tokenizer.pad_id());
  options.unk_token = text(tokenizer.unk_id());
  return options;
}

}  // namespace tessera::data
