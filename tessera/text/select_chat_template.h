// Finds the chat template that a name stands for, in recipes and on the command line.
#pragma once

#include <memory>
#include <string>

#include "tessera/text/chat_template/chat_template.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::text {

// Returns the template that `name` stands for: "" or tokenizer_default (the model's own, with its template
// for tools), tokenizer_default.NAME (the model's template of that name, for all conversations),
// tokenizer_default_fallback_<builtin> (the model's own, or else that built-in one), jinja (`jinja` is then
// the template or a file that holds it), or a built-in name. An empty `name` with a `jinja` counts as jinja.
// A relative file that is not in the current folder is looked for in `folder`. Throws Error(Config) for an
// unknown name, Error(Model) if the model has no (default) template or the template cannot be parsed.
std::shared_ptr<const ChatTemplate> select_chat_template(const std::string& name, const std::string& jinja,
                                                         const std::string& folder,
                                                         const Tokenizer& tokenizer);

}  // namespace tessera::text
