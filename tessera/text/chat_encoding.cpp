#include "tessera/text/chat_encoding.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace tessera::text {
namespace {

// Cuts the spans of control tokens back to the scaffold. A token with lstrip or rstrip may swallow white
// space of the content beside it, but it stands for none of the content.
void keep_off(const std::vector<ByteSpan>& contents, const Tokenizer& tokenizer, Encoding& encoded) {
  auto content = contents.begin();
  for (size_t i = 0; i < encoded.ids.size(); ++i) {
    ByteSpan& span = encoded.spans[i];
    while (content != contents.end() && content->end <= span.begin) ++content;
    if (!tokenizer.is_special(encoded.ids[i])) continue;
    if (content != contents.end() && content->begin <= span.begin)
      span.begin = std::min(content->end, span.end);
    const auto next =
        std::find_if(content, contents.end(), [&](const ByteSpan& c) { return c.begin >= span.begin; });
    if (next != contents.end()) span.end = std::max(span.begin, std::min(span.end, next->begin));
  }
}

}  // namespace

Encoding encode_chat(const Tokenizer& tokenizer, const RenderedChat& chat, std::span<const int64_t> cuts) {
  std::string text;
  std::vector<ByteSpan> contents;
  for (const RenderedSegment& segment : chat.segments) {
    const auto begin = static_cast<int64_t>(text.size());
    text += segment.text;
    if (segment.is_content && !segment.text.empty())
      contents.push_back({begin, static_cast<int64_t>(text.size())});
  }
  Encoding out = tokenizer.encode_with_spans(text, {.parse_special = true, .plain = contents, .cuts = cuts});
  keep_off(contents, tokenizer, out);
  return out;
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

}  // namespace tessera::text
