// Turns a rendered chat into token ids.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/text/chat_template/chat_template.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::text {

// Encodes the chat's whole text at once, but recognises control tokens in the scaffold only: ordinary text
// gets the ids that encoding the whole text gives, and a message that spells out a control token gets plain
// ids. Spans are bytes of RenderedChat::text(), which is valid UTF-8. Adds no BOS or EOS, since templates
// write their own. No token but a control token reaches over one of `cuts`, which are bytes of that text in
// order.
Encoding encode_chat(const Tokenizer& tokenizer, const RenderedChat& chat,
                     std::span<const int64_t> cuts = {});

// Returns options that give a template the texts of the tokenizer's special tokens.
RenderOptions render_options(const Tokenizer& tokenizer, bool add_generation_prompt = false);

}  // namespace tessera::text
