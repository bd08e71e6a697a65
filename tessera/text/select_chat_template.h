// The chat template that a name stands for, in recipes and on the command line.
#pragma once

#include <memory>
#include <string>

#include "tessera/text/chat_template/chat_template.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::text {

// `name`: "" or tokenizer_default (the model's own), tokenizer_default_fallback_<builtin>, jinja (then
// `jinja` is the template or a file with it), or a built-in. A `jinja` text with no name counts as jinja.
// A relative file that is not in the current folder starts at `folder`. Throws Error(Config) for an unknown
// name, Error(Model) where the model has no template or it cannot be parsed.
std::shared_ptr<const ChatTemplate> select_chat_template(const std::string& name, const std::string& jinja,
                                                         const std::string& folder,
                                                         const Tokenizer& tokenizer);

}  // namespace tessera::text
