// Token ids of a rendered chat.
#pragma once

#include "tessera/text/chat_template/chat_template.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::text {

// Encodes the chat's text as one, with control tokens recognised in the scaffold alone: ordinary text gets
// the ids that encoding the whole would give, and a message that spells out a control token gets plain ids.
// Spans are bytes of RenderedChat::text(), which is valid UTF-8. No BOS or EOS is added: templates write
// their own.
Encoding encode_chat(const Tokenizer& tokenizer, const RenderedChat& chat);

// Text of the tokenizer's special tokens for rendering.
RenderOptions render_options(const Tokenizer& tokenizer, bool add_generation_prompt = false);

}  // namespace tessera::text
