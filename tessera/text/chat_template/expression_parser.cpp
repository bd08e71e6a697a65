#include "tessera/text/chat_template/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/text/chat_template/filters.h"
#include "tessera/text/chat_template/is_tests.h"
#include "tessera/text/chat_template/methods.h"

namespace tessera::text::jinja {

namespace {

std::string described(const Token& token) {
  switch (token.kind) {
    case TokenKind::Data: return "text";
    case TokenKind::BlockBegin: return "'{%'";
    case TokenKind::BlockEnd: return "'%}'";
    case TokenKind::VariableBegin: return "'{{'";
    case TokenKind::VariableEnd: return "'}}'";
    case TokenKind::String: return "a string";
    case TokenKind::End: return "the end of the template";
    default: return "'" + token.text + "'";
  }
}

bool is_internal_name(std::string_view name) { return name.starts_with("__"); }

}  // namespace

ExpressionParser::Nesting::Nesting(ExpressionParser& parser) : parser_(parser) {
  if (++parser.nesting_ > kMaxSyntaxDepth) {
    --parser.nesting_;
    parser.fail(parser.now().position,
                "the template nests more than " + std::to_string(kMaxSyntaxDepth) + " deep");
  }
}

const Token& ExpressionParser::take() {
  const Token& token = tokens_[next_];
  if (next_ + 1 < tokens_.size()) ++next_;
  return token;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!now().is_name(name)) return false;
  take();
  return true;
}

bool ExpressionParser::skip_operator(std::string_view op) {
  if (!now().is_operator(op)) return false;
  take();
  return true;
}

void ExpressionParser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) fail_unexpected("'" + std::string(op) + "'");
}

const Token& ExpressionParser::expect_name() {
  if (!now().is(TokenKind::Name)) fail_unexpected("a name");
  return take();
}

void ExpressionParser::expect_keyword(std::string_view name) {
  if (!skip_name(name)) fail_unexpected("'" + std::string(name) + "'");
}

void ExpressionParser::fail(Position at, const std::string& what) const {
  fail_syntax(template_name_, at, what);
}

void ExpressionParser::fail_unexpected(std::string_view needed) const {
  throw Error(ErrorKind::Model, "TEMPLATE-SYNTAX", "unexpected " + described(now()))
      .at(template_name_, now().position.line, now().position.column)
      .need(needed);
}

int32_t ExpressionParser::intern(const std::string& name) {
  const auto [found, added] = ids_.try_emplace(name, static_cast<int32_t>(names_.size()));
  if (added) names_.push_back(name);
  return found->second;
}

ExpressionPtr ExpressionParser::make(ExpressionKind kind, Position at) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->at = at;
  return node;
}

ExpressionPtr ExpressionParser::finish(ExpressionPtr node) const {
  node->depth = 1;
  for (const ExpressionPtr& child : node->children) {
    if (child) node->depth = std::max(node->depth, child->depth + 1);
  }
  for (const auto& [name, child] : node->keywords) node->depth = std::max(node->depth, child->depth + 1);
  for (const auto* child : {&node->spread, &node->spread_names}) {
    if (*child) node->depth = std::max(node->depth, (*child)->depth + 1);
  }
  if (node->depth > kMaxSyntaxDepth) {
    fail(node->at, "the expression nests more than " + std::to_string(kMaxSyntaxDepth) + " deep");
  }
  return node;
}

ExpressionPtr ExpressionParser::binary(ExpressionKind kind, Position at, ExpressionPtr left,
                                       ExpressionPtr right) const {
  ExpressionPtr node = make(kind, at);
  node->children.push_back(std::move(left));
  node->children.push_back(std::move(right));
  return finish(std::move(node));
}

bool ExpressionParser::at_tuple_end(std::string_view stop) const {
  return now().is(TokenKind::VariableEnd) || now().is(TokenKind::BlockEnd) || now().is_operator(")") ||
         (!stop.empty() && now().is_name(stop));
}

ExpressionPtr ExpressionParser::parse_tuple(bool conditional, bool parenthesised, std::string_view stop) {
  const Position at = now().position;
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) expect_operator(",");
    if (at_tuple_end(stop)) break;
    items.push_back(parse_expression(conditional));
    if (!now().is_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!parenthesised) fail_unexpected("an expression");
  }
  ExpressionPtr node = make(ExpressionKind::Tuple, at);
  node->children = std::move(items);
  return finish(std::move(node));
}

ExpressionPtr ExpressionParser::parse_expression(bool conditional) {
  const Nesting nesting(*this);
  if (!conditional) return parse_or();
  const Position at = now().position;
  ExpressionPtr node = parse_or();
  while (skip_name("if")) {
    ExpressionPtr choice = make(ExpressionKind::Conditional, at);
    choice->children.push_back(std::move(node));
    choice->children.push_back(parse_or());
    choice->children.push_back(skip_name("else") ? parse_expression() : nullptr);
    node = finish(std::move(choice));
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_or() {
  ExpressionPtr node = parse_and();
  while (now().is_name("or")) {
    const Position at = take().position;
    node = binary(ExpressionKind::Or, at, std::move(node), parse_and());
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_and() {
  ExpressionPtr node = parse_not();
  while (now().is_name("and")) {
    const Position at = take().position;
    node = binary(ExpressionKind::And, at, std::move(node), parse_not());
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_not() {
  const Nesting nesting(*this);
  if (!now().is_name("not")) return parse_compare();
  ExpressionPtr node = make(ExpressionKind::Not, take().position);
  node->children.push_back(parse_not());
  return finish(std::move(node));
}

ExpressionPtr ExpressionParser::parse_compare() {
  static const std::map<std::string_view, Comparison> kComparisons = {
      {"==", Comparison::Equal},     {"!=", Comparison::NotEqual}, {"<", Comparison::Less},
      {"<=", Comparison::LessEqual}, {">", Comparison::Greater},   {">=", Comparison::GreaterEqual}};
  const Position at = now().position;
  ExpressionPtr first = parse_sum();
  ExpressionPtr node;
  while (true) {
    Comparison comparison;
    if (now().is(TokenKind::Operator) && kComparisons.count(now().text) != 0) {
      comparison = kComparisons.at(take().text);
    } else if (skip_name("in")) {
      comparison = Comparison::In;
    } else if (now().is_name("not") && ahead().is_name("in")) {
      take(), take();
      comparison = Comparison::NotIn;
    } else {
      break;
    }
    if (!node) {
      node = make(ExpressionKind::Compare, at);
      node->children.push_back(std::move(first));
    }
    node->comparisons.push_back(comparison);
    node->children.push_back(parse_sum());
  }
  return node ? finish(std::move(node)) : std::move(first);
}

ExpressionPtr ExpressionParser::parse_sum() {
  ExpressionPtr node = parse_concat();
  while (now().is_operator("+") || now().is_operator("-")) {
    const Token& token = take();
    node = binary(ExpressionKind::Arithmetic, token.position, std::move(node), parse_concat());
    node->op = token.text == "+" ? Operator::Add : Operator::Subtract;
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_concat() {
  const Position at = now().position;
  ExpressionPtr first = parse_product();
  if (!now().is_operator("~")) return first;
  ExpressionPtr node = make(ExpressionKind::Concat, at);
  node->children.push_back(std::move(first));
  while (skip_operator("~")) node->children.push_back(parse_product());
  return finish(std::move(node));
}

ExpressionPtr ExpressionParser::parse_product() {
  ExpressionPtr node = parse_power();
  while (now().is_operator("*") || now().is_operator("/") || now().is_operator("//") ||
         now().is_operator("%")) {
    const Token& token = take();
    node = binary(ExpressionKind::Arithmetic, token.position, std::move(node), parse_power());
    node->op = token.text == "*"    ? Operator::Multiply
               : token.text == "/"  ? Operator::Divide
               : token.text == "//" ? Operator::FloorDivide
                                    : Operator::Modulo;
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_power() {
  ExpressionPtr node = parse_unary(true);
  while (now().is_operator("**")) {
    const Position at = take().position;
    node = binary(ExpressionKind::Arithmetic, at, std::move(node), parse_unary(true));
    node->op = Operator::Power;
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_unary(bool filters) {
  const Nesting nesting(*this);
  ExpressionPtr node;
  if (now().is_operator("-") || now().is_operator("+")) {
    const Token& token = take();
    node = make(token.text == "-" ? ExpressionKind::Negative : ExpressionKind::Positive, token.position);
    node->children.push_back(parse_unary(false));
    node = finish(std::move(node));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  while (filters) {
    if (now().is_operator("|")) {
      node = parse_filters(std::move(node), false);
    } else if (now().is_name("is")) {
      node = parse_test(std::move(node));
    } else if (now().is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      break;
    }
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Token& token = now();
  if (token.is(TokenKind::Integer) || token.is(TokenKind::Float)) return parse_number();
  if (token.is_operator("[")) return parse_list();
  if (token.is_operator("{")) return parse_dict();
  if (skip_operator("(")) {
    ExpressionPtr node = parse_tuple(true, true);
    expect_operator(")");
    return node;
  }
  if (token.is(TokenKind::Name)) {
    take();
    ExpressionPtr node = make(ExpressionKind::Literal, token.position);
    if (token.text == "true" || token.text == "True") {
      node->literal = Value::boolean(true);
    } else if (token.text == "false" || token.text == "False") {
      node->literal = Value::boolean(false);
    } else if (token.text != "none" && token.text != "None") {
      node->kind = ExpressionKind::Name;
      node->name = intern(token.text);
      read_.insert(node->name);
    }
    return node;
  }
  if (token.is(TokenKind::String)) {
    ExpressionPtr node = make(ExpressionKind::Literal, token.position);
    std::string text;
    while (now().is(TokenKind::String)) text += take().text;
    node->literal = Value::literal(text);
    return node;
  }
  fail_unexpected("an expression");
}

ExpressionPtr ExpressionParser::parse_number() {
  const Token& token = take();
  ExpressionPtr node = make(ExpressionKind::Literal, token.position);
  if (token.is(TokenKind::Float)) {
    node->literal = Value::real(std::strtod(token.text.c_str(), nullptr));
    return node;
  }
  std::string_view digits = token.text;
  int base = 10;
  if (digits.size() > 1 && digits[0] == '0' && (digits[1] < '0' || digits[1] > '9')) {
    base = (digits[1] | 0x20) == 'x' ? 16 : (digits[1] | 0x20) == 'o' ? 8 : 2;
    digits.remove_prefix(2);
  } else if (digits[0] == '0' && digits.find_first_not_of('0') != std::string_view::npos) {
    fail(token.position, "a whole number must not start with 0");
  }
  int64_t value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (status != std::errc{} || end != digits.data() + digits.size()) {
    fail(token.position, "'" + token.text + "' is no whole number of 64 bits");
  }
  node->literal = Value::integer(value);
  return node;
}

ExpressionPtr ExpressionParser::parse_list() {
  ExpressionPtr node = make(ExpressionKind::List, take().position);
  while (!now().is_operator("]")) {
    if (!node->children.empty()) expect_operator(",");
    if (now().is_operator("]")) break;
    node->children.push_back(parse_expression());
  }
  expect_operator("]");
  return finish(std::move(node));
}

ExpressionPtr ExpressionParser::parse_dict() {
  ExpressionPtr node = make(ExpressionKind::Dict, take().position);
  while (!now().is_operator("}")) {
    if (!node->children.empty()) expect_operator(",");
    if (now().is_operator("}")) break;
    node->children.push_back(parse_expression());
    expect_operator(":");
    node->children.push_back(parse_expression());
  }
  expect_operator("}");
  return finish(std::move(node));
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr node) {
  while (true) {
    if (now().is_operator(".")) {
      node = parse_attribute(std::move(node));
    } else if (now().is_operator("[")) {
      node = parse_subscript(std::move(node));
    } else if (now().is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_attribute(ExpressionPtr object) {
  const Position at = take().position;
  if (now().is(TokenKind::Integer)) {
    return binary(ExpressionKind::Item, at, std::move(object), parse_number());
  }
  if (is_internal_name(now().text))
    fail(now().position, "attribute '" + now().text + "' is out of reach of a template");
  ExpressionPtr node = make(ExpressionKind::Attribute, now().position);
  node->text = expect_name().text;
  node->children.push_back(std::move(object));
  return finish(std::move(node));
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr object) {
  ExpressionPtr node = make(ExpressionKind::Slice, take().position);
  const auto at_end = [&] { return now().is_operator(":") || now().is_operator("]"); };
  node->children.push_back(std::move(object));
  node->children.push_back(at_end() ? nullptr : parse_expression());
  if (skip_operator(":")) {
    node->children.push_back(at_end() ? nullptr : parse_expression());
    const bool third = skip_operator(":") && !at_end();
    node->children.push_back(third ? parse_expression() : nullptr);
  } else {
    if (!node->children[1]) fail_unexpected("an expression");
    node->kind = ExpressionKind::Item;
    const Expression& key = *node->children[1];
    if (key.kind == ExpressionKind::Literal && key.literal.is_string() &&
        is_internal_name(key.literal.bytes())) {
      fail(key.at, "attribute '" + key.literal.bytes() + "' is out of reach of a template");
    }
  }
  expect_operator("]");
  return finish(std::move(node));
}

void ExpressionParser::check_count(size_t count, Position at) const {
  if (count >= kMaxArguments)
    fail(at, "more than " + std::to_string(kMaxArguments) + " arguments or parameters");
}

void ExpressionParser::parse_arguments(Expression& call) {
  expect_operator("(");
  bool first = true;
  while (!now().is_operator(")")) {
    if (!first) {
      expect_operator(",");
      if (now().is_operator(")")) break;
    }
    first = false;
    if (now().is_operator("*") || now().is_operator("**")) {
      const Token& star = take();
      ExpressionPtr& spread = star.text == "*" ? call.spread : call.spread_names;
      if (spread || call.spread_names) fail(star.position, "arguments are spread twice");
      spread = parse_expression();
    } else if (call.spread_names) {
      fail(now().position, "an argument follows those spread with **");
    } else if (now().is(TokenKind::Name) && ahead().is_operator("=")) {
      const Token& name = take();
      take();
      for (const auto& [known, value] : call.keywords) {
        if (known == name.text) fail(name.position, "argument '" + name.text + "' is given twice");
      }
      check_count(call.keywords.size(), name.position);
      call.keywords.emplace_back(name.text, parse_expression());
    } else {
      if (!call.keywords.empty() || call.spread) {
        fail(now().position, "an argument without a name follows one with a name or those spread with *");
      }
      check_count(call.children.size(), now().position);
      call.children.push_back(parse_expression());
    }
  }
  expect_operator(")");
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
  ExpressionPtr node = make(ExpressionKind::Call, callee->at);
  if (callee->kind == ExpressionKind::Name) {
    called_.try_emplace(callee->name, callee->at);
  } else if (callee->kind == ExpressionKind::Attribute && !is_known_method(callee->text)) {
    throw Error(ErrorKind::Model, "TEMPLATE-UNKNOWN", "unknown method '" + callee->text + "'")
        .at(template_name_, callee->at.line, callee->at.column)
        .hint("a template may call: " + join(method_names(), ", "));
  }
  node->children.push_back(std::move(callee));
  parse_arguments(*node);
  return finish(std::move(node));
}

// Refuses an unknown filter or test whose name is given as a string to map, select and their like.
void ExpressionParser::check_nested_name(const Expression& call) const {
  const std::string_view name = call.filter->name;
  const bool takes_filter = name == "map";
  const size_t place = name == "selectattr" || name == "rejectattr" ? 2 : 1;
  if (!takes_filter && place == 1 && name != "select" && name != "reject") return;
  if (call.children.size() <= place) return;
  const Expression& given = *call.children[place];
  if (given.kind != ExpressionKind::Literal || !given.literal.is_string()) return;
  const std::string& nested = given.literal.bytes();
  if (takes_filter ? find_filter(nested, dialect_) != nullptr : find_test(nested) != nullptr) return;
  throw Error(ErrorKind::Model, "TEMPLATE-UNKNOWN",
              std::string("unknown ") + (takes_filter ? "filter" : "test") + " '" + excerpt(nested) + "'")
      .at(template_name_, given.at.line, given.at.column);
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr input, bool first_without_pipe) {
  ExpressionPtr node = std::move(input);
  while (first_without_pipe || skip_operator("|")) {
    first_without_pipe = false;
    const Token& name = expect_name();
    ExpressionPtr filter = make(ExpressionKind::Filter, name.position);
    filter->filter = find_filter(name.text, dialect_);
    if (filter->filter == nullptr) {
      throw Error(ErrorKind::Model, "TEMPLATE-UNKNOWN", "unknown filter '" + name.text + "'")
          .at(template_name_, name.position.line, name.position.column)
          .hint("a template may use: " + join(filter_names(), ", "));
    }
    filter->children.push_back(std::move(node));
    if (now().is_operator("(")) parse_arguments(*filter);
    check_nested_name(*filter);
    node = finish(std::move(filter));
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr input) {
  const Position at = take().position;
  const bool negated = skip_name("not");
  const Token& name = expect_name();
  ExpressionPtr node = make(ExpressionKind::Test, name.position);
  node->test = find_test(name.text);
  if (node->test == nullptr) {
    throw Error(ErrorKind::Model, "TEMPLATE-UNKNOWN", "unknown test '" + name.text + "'")
        .at(template_name_, name.position.line, name.position.column)
        .hint("a template may use: " + join(test_names(), ", "));
  }
  node->children.push_back(std::move(input));
  const bool starts_argument = now().is(TokenKind::Name) || now().is(TokenKind::String) ||
                               now().is(TokenKind::Integer) || now().is(TokenKind::Float) ||
                               now().is_operator("[") || now().is_operator("{");
  if (now().is_operator("(")) {
    parse_arguments(*node);
  } else if (starts_argument && !now().is_name("else") && !now().is_name("or") && !now().is_name("and")) {
    if (now().is_name("is")) fail(now().position, "tests cannot be chained with 'is'");
    node->children.push_back(parse_postfix(parse_primary()));
  }
  node = finish(std::move(node));
  if (!negated) return node;
  ExpressionPtr inverse = make(ExpressionKind::Not, at);
  inverse->children.push_back(std::move(node));
  return finish(std::move(inverse));
}

}  // namespace tessera::text::jinja
