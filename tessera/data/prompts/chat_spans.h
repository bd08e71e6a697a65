// Finds the bytes of a rendered chat that each message stands for.
#pragma once

#include <vector>

#include "tessera/data/prompts/conversation.h"
#include "tessera/text/chat_template/chat_template.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::data {

// The place of one message in RenderedChat::text().
struct TurnSpans {
  // The bytes that an assistant would have written, as disjoint ascending ranges: the message's content with
  // what the template wrote between its parts, or the generation blocks around it. The list is empty when the
  // template leaves the message out.
  std::vector<text::ByteSpan> ranges;
  // The bytes in which the message's end-of-turn token lies: from the end of its content to the next
  // message's.
  text::ByteSpan closing;
  // Bytes of the message whose tokens are not trained, though they may reach into a trained range.
  std::vector<text::ByteSpan> masked;
};

// Returns one entry for each message. A role that the template prints in a message's header does not count as
// its content.
std::vector<TurnSpans> find_turn_spans(const text::RenderedChat& chat, const std::vector<Turn>& messages,
                                       bool generation_blocks);

// Narrows the ranges of the turn `index` to what its message's spans train: bytes of `content` and of
// `reasoning` as the template wrote them. Throws Error(Data) without a place if it rewrote the text.
void apply_train_spans(const text::RenderedChat& chat, const std::vector<Turn>& messages, int64_t index,
                       const std::string& content, const std::string& reasoning, TurnSpans& turn);

}  // namespace tessera::data
