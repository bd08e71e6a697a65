// Cuts a template into tokens: text, and the names, literals and operators inside its tags.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/text/chat_template/runtime.h"

namespace tessera::text::jinja {

enum class TokenKind {
  Data,
  BlockBegin,
  BlockEnd,
  VariableBegin,
  VariableEnd,
  Name,
  String,
  Integer,
  Float,
  Operator,
  End
};

struct Token {
  TokenKind kind = TokenKind::End;
  std::string text;  // value of Data, Name, String and Operator; digits of a number
  Position position;

  bool is(TokenKind k) const { return kind == k; }
  bool is_name(std::string_view name) const { return kind == TokenKind::Name && text == name; }
  bool is_operator(std::string_view name) const { return kind == TokenKind::Operator && text == name; }
};

// Throws E-MODEL-TEMPLATE-SYNTAX at the position `at`.
[[noreturn]] void fail_syntax(std::string_view template_name, Position at, const std::string& what);

// Returns the tokens of `source`, ended by End. Line ends become \n, and one at the very end is dropped;
// white space around tags is handled as by jinja2 with trim_blocks and lstrip_blocks.
std::vector<Token> tokenize(std::string_view source, std::string_view template_name);

}  // namespace tessera::text::jinja
