// Which bytes of a rendered chat each message stands for.
#pragma once

#include <vector>

#include "tessera/data/prompts/conversation.h"
#include "tessera/text/chat_template/chat_template.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::data {

// Where one message stands in RenderedChat::text().
struct TurnSpans {
  // What an assistant would have written, disjoint and ascending: the message's content with what the
  // template wrote between its parts, or the generation blocks around it. Empty when the template leaves the
  // message out.
  std::vector<text::ByteSpan> ranges;
  // The message's end-of-turn token lies here: from the end of its content to the next message's.
  text::ByteSpan closing;
  // Bytes of the message whose tokens are not trained, though they may reach into a trained range.
  std::vector<text::ByteSpan> masked;
};

// One entry a message. A role that the template prints in a message's header is no content of it.
std::vector<TurnSpans> find_turn_spans(const text::RenderedChat& chat, const std::vector<Turn>& messages,
                                       bool generation_blocks);

// Narrows the ranges of the turn `index` to what its message's spans train: bytes of `content` and of
// `reasoning` as the template wrote them. Throws Error(Data) without a place where it rewrote the text.
void apply_train_spans(const text::RenderedChat& chat, const std::vector<Turn>& messages, int64_t index,
                       const std::string& content, const std::string& reasoning, TurnSpans& turn);

}  // namespace tessera::data
