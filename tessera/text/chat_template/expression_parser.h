// Parses the expressions of a template.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/text/chat_template/ast.h"
#include "tessera/text/chat_template/lexer.h"

namespace tessera::text::jinja {

class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, std::string_view template_name, Dialect dialect)
      : tokens_(std::move(tokens)), template_name_(template_name), dialect_(dialect) {}

 protected:
  // Counts how deeply the construct that is being parsed is nested, and refuses more than kMaxSyntaxDepth.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser);
    ~Nesting() { --parser_.nesting_; }

   private:
    ExpressionParser& parser_;
  };

  const Token& now() const { return tokens_[next_]; }
  const Token& ahead() const { return tokens_[next_ + 1 < tokens_.size() ? next_ + 1 : next_]; }
  const Token& take();
  bool skip_name(std::string_view name);
  bool skip_operator(std::string_view op);
  void expect_operator(std::string_view op);
  const Token& expect_name();
  void expect_keyword(std::string_view name);
  [[noreturn]] void fail(Position at, const std::string& what) const;
  [[noreturn]] void fail_unexpected(std::string_view needed) const;

  int32_t intern(const std::string& name);

  ExpressionPtr parse_expression(bool conditional = true);
  // Parses one expression, or several with commas, which make a tuple. `stop` is a word that ends it, such as
  // "in".
  ExpressionPtr parse_tuple(bool conditional, bool parenthesised, std::string_view stop = {});
  // Parses `| filter | filter(...)` on `input`. In a filter block `input` is null and the first | is left
  // out.
  ExpressionPtr parse_filters(ExpressionPtr input, bool first_without_pipe);
  // Refuses one more argument or parameter when there are `count` already and no more are allowed.
  void check_count(size_t count, Position at) const;
  ExpressionPtr finish(ExpressionPtr node) const;  // sets the node's depth, refuses too deep trees

  std::vector<std::string> names_;
  std::set<int32_t> assigned_;  // names that the template assigns to somewhere
  std::set<int32_t> read_;      // names read since the current macro began
  // Functions that the template calls by name, with the position of the first call.
  std::map<int32_t, Position> called_;

 private:
  ExpressionPtr make(ExpressionKind kind, Position at) const;
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_number();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_attribute(ExpressionPtr object);
  ExpressionPtr parse_subscript(ExpressionPtr object);
  ExpressionPtr parse_call(ExpressionPtr callee);
  ExpressionPtr parse_test(ExpressionPtr input);
  ExpressionPtr binary(ExpressionKind kind, Position at, ExpressionPtr left, ExpressionPtr right) const;
  void parse_arguments(Expression& call);
  void check_nested_name(const Expression& call) const;
  bool at_tuple_end(std::string_view stop) const;

  std::vector<Token> tokens_;
  size_t next_ = 0;
  int nesting_ = 0;
  std::map<std::string, int32_t> ids_;

 protected:
  std::string_view template_name_;
  Dialect dialect_;
};

}  // namespace tessera::text::jinja
