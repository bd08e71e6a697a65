#include "tessera/data/chat_encoding.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {
namespace {

struct Control {
  int32_t id = 0;
  ByteSpan span;
};

// Whether `id`, found in the text `piece` with control tokens recognised, is one: plain text of the same
// letters gives other ids.
bool is_control(const Tokenizer& tokenizer, int32_t id, std::string_view piece) {
  if (tokenizer.is_special(id)) return true;
  if (tokenizer.id_to_token(id) != piece) return false;
  return tokenizer.encode(piece, {.parse_special = false}) != std::vector<int32_t>{id};
}

void append(Encoding& out, const Encoding& part, int64_t offset) {
  out.ids.insert(out.ids.end(), part.ids.begin(), part.ids.end());
  for (const ByteSpan span : part.spans) out.spans.push_back({span.begin + offset, span.end + offset});
}

void find_controls(const Tokenizer& tokenizer, std::string_view scaffold, int64_t offset,
                   std::vector<Control>& controls) {
  const Encoding encoded = tokenizer.encode_with_spans(scaffold, {.parse_special = true});
  for (size_t i = 0; i < encoded.ids.size(); ++i) {
    const ByteSpan span = encoded.spans[i];
    if (span.end <= span.begin) continue;
    if (!is_control(tokenizer, encoded.ids[i], scaffold.substr(span.begin, span.end - span.begin))) continue;
    controls.push_back({encoded.ids[i], {span.begin + offset, span.end + offset}});
  }
}

}  // namespace

Encoding encode_chat(const Tokenizer& tokenizer, const RenderedChat& chat) {
  std::string text;
  std::vector<Control> controls;
  size_t scaffold_begin = 0;
  const auto end_scaffold = [&] {
    if (scaffold_begin < text.size()) {
      find_controls(tokenizer, std::string_view(text).substr(scaffold_begin),
                    static_cast<int64_t>(scaffold_begin), controls);
    }
  };
  for (const RenderedSegment& segment : chat.segments) {
    if (segment.is_content && !segment.text.empty()) end_scaffold();
    text += segment.text;
    if (segment.is_content && !segment.text.empty()) scaffold_begin = text.size();
  }
  end_scaffold();

  Encoding out;
  int64_t begin = 0;
  const auto encode_plain = [&](int64_t end) {
    if (begin == end) return;
    const auto plain = std::string_view(text).substr(begin, end - begin);
    append(out, tokenizer.encode_with_spans(plain, {.parse_special = false}), begin);
  };
  for (const Control& control : controls) {
    encode_plain(control.span.begin);
    out.ids.push_back(control.id);
    out.spans.push_back(control.span);
    begin = control.span.end;
  }
  encode_plain(static_cast<int64_t>(text.size()));
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

}  // namespace tessera::data
