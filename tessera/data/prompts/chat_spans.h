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
};

// One entry a message. A role that the template prints in a message's header is no content of it.
std::vector<TurnSpans> find_turn_spans(const text::RenderedChat& chat, const std::vector<Turn>& messages,
                                       bool generation_blocks);

}  // namespace tessera::data
