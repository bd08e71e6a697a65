// Parses a template into its syntax tree.
#pragma once

#include <string_view>

#include "tessera/text/chat_template/ast.h"
#include "tessera/text/chat_template/lexer.h"

namespace tessera::text::jinja {

// Parses a template. Throws Error(Model) with the template's name, line and column: E-MODEL-TEMPLATE-SYNTAX,
// and E-MODEL-TEMPLATE-UNKNOWN for an unknown tag, filter, test, method or function.
SyntaxTree parse_template(std::string_view source, std::string_view template_name,
                          Dialect dialect = Dialect::Chat);

}  // namespace tessera::text::jinja
