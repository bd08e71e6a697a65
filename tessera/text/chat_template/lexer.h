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

// How jinja2 is set up by those whose templates are read.
enum class Dialect {
  Chat,  // chat templates in Transformers: trim_blocks and lstrip_blocks; undefined values are empty
  // Tasks of lm-evaluation-harness: keep_trailing_newline, StrictUndefined and a filter regex_replace.
  Task,
};

// Throws E-MODEL-TEMPLATE-SYNTAX at the position `at`.
[[noreturn]] void fail_syntax(std::string_view template_name, Position at, const std::string& what);

// Returns the tokens of `source`, ended by End. Line ends become \n. In the dialect Chat one at the very end
// is dropped, and white space around tags is handled as by jinja2 with trim_blocks and lstrip_blocks; in Task
// all of it stays.
std::vector<Token> tokenize(std::string_view source, std::string_view template_name, Dialect dialect);

}  // namespace tessera::text::jinja
