#include "tessera/text/chat_template/parser.h"

#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/core/utf8.h"
#include "tessera/text/chat_template/expression_parser.h"
#include "tessera/text/chat_template/functions.h"
#include "tessera/text/chat_template/lexer.h"

namespace tessera::text::jinja {

namespace {

using StatementPtr = std::unique_ptr<Statement>;

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  SyntaxTree run() {
    SyntaxTree tree;
    tree.body = parse_body({});
    // Calls are checked at the end, since the macro may be defined, or the name assigned, behind the first
    // call.
    for (const auto& [id, at] : called_) {
      const std::string& name = names_[static_cast<size_t>(id)];
      if (assigned_.count(id) != 0 || find_function(name)) continue;
      throw Error(ErrorKind::Model, "TEMPLATE-UNKNOWN", "unknown function '" + name + "'")
          .at(template_name_, at.line, at.column)
          .hint("a template may call: " + tessera::join(function_names(), ", "));
    }
    tree.names = std::move(names_);
    tree.has_generation = has_generation_;
    return tree;
  }

 private:
  StatementPtr make(StatementKind kind, Position at) const {
    auto node = std::make_unique<Statement>();
    node->kind = kind;
    node->at = at;
    return node;
  }

  // Parses statements up to a tag that starts with one of `ends`, which becomes the current token; if `ends`
  // is empty, up to the end of the template.
  Body parse_body(const std::vector<std::string_view>& ends) {
    const Nesting nesting(*this);
    Body body;
    while (true) {
      const Token& token = now();
      switch (token.kind) {
        case TokenKind::End:
          if (!ends.empty()) {
            throw Error(ErrorKind::Model, "TEMPLATE-SYNTAX", "the template ends inside a block")
                .at(template_name_, token.position.line, token.position.column)
                .need("{% " + std::string(ends.back()) + " %}");
          }
          return body;
        case TokenKind::Data: {
          StatementPtr node = make(StatementKind::Data, token.position);
          node->text = take().text;
          body.push_back(std::move(node));
          break;
        }
        case TokenKind::VariableBegin: {
          take();
          StatementPtr node = make(StatementKind::Output, now().position);
          node->expression = parse_tuple(true, false);
          if (!now().is(TokenKind::VariableEnd)) fail_unexpected("'}}'");
          take();
          body.push_back(std::move(node));
          break;
        }
        default:
          take();
          if (!now().is(TokenKind::Name)) fail_unexpected("a tag name");
          if (std::find(ends.begin(), ends.end(), now().text) != ends.end()) return body;
          body.push_back(parse_statement());
          end_tag();
      }
    }
  }

  void end_tag() {
    if (!now().is(TokenKind::BlockEnd)) fail_unexpected("'%}'");
    take();
  }

  // Parses the rest of an opening tag and the statements of its block. The word that ends the block becomes
  // the current token.
  Body parse_block(const std::vector<std::string_view>& ends) {
    skip_operator(":");
    end_tag();
    return parse_body(ends);
  }

  StatementPtr parse_statement() {
    const Token& tag = take();
    if (tag.text == "if") return parse_if(tag.position);
    if (tag.text == "for") return parse_for(tag.position);
    if (tag.text == "set") return parse_set(tag.position);
    if (tag.text == "macro") return parse_macro(tag.position);
    if (tag.text == "call") return parse_call_block(tag.position);
    if (tag.text == "filter") return parse_filter_block(tag.position);
    if (tag.text == "with") return parse_with(tag.position);
    if (tag.text == "generation") return parse_generation(tag.position);
    if (tag.text == "print") return parse_print(tag.position);
    if (tag.text == "break" || tag.text == "continue") {
      if (loops_ == 0) fail(tag.position, "'" + tag.text + "' outside of a loop");
      return make(tag.text == "break" ? StatementKind::Break : StatementKind::Continue, tag.position);
    }
    throw Error(ErrorKind::Model, "TEMPLATE-UNKNOWN", "unknown tag '" + tag.text + "'")
        .at(template_name_, tag.position.line, tag.position.column)
        .hint(
            "a template may use: if, for, set, macro, call, filter, with, print, generation, raw, break, "
            "continue");
  }

  StatementPtr parse_if(Position at) {
    StatementPtr node = make(StatementKind::If, at);
    while (true) {
      Statement::Branch branch;
      branch.condition = parse_tuple(false, false);
      branch.body = parse_block({"elif", "else", "endif"});
      node->branches.push_back(std::move(branch));
      const Token& end = take();
      if (end.text == "elif") continue;
      if (end.text == "else") {
        node->branches.push_back({nullptr, parse_block({"endif"})});
        take();
      }
      return node;
    }
  }

  StatementPtr parse_for(Position at) {
    StatementPtr node = make(StatementKind::For, at);
    node->target = parse_target(false, "in");
    node->loop_name = intern("loop");
    refuse_loop_target(node->target, node->loop_name);
    expect_keyword("in");
    node->expression = parse_tuple(false, false, "recursive");
    if (skip_name("if")) node->condition = parse_expression();
    if (now().is_name("recursive")) {
      throw Error(ErrorKind::Model, "TEMPLATE-UNKNOWN", "recursive loops are not supported")
          .at(template_name_, now().position.line, now().position.column);
    }
    ++loops_;
    node->body = parse_block({"else", "endfor"});
    --loops_;
    if (take().text == "else") {
      node->other = parse_block({"endfor"});
      take();
    }
    return node;
  }

  void refuse_loop_target(const Target& target, int32_t loop) const {
    if (target.name == loop) fail(target.at, "a for loop cannot assign to 'loop'");
    for (const Target& item : target.items) refuse_loop_target(item, loop);
  }

  StatementPtr parse_set(Position at) {
    StatementPtr node = make(StatementKind::Set, at);
    node->target = parse_target(true, {});
    if (skip_operator("=")) {
      node->expression = parse_tuple(true, false);
      return node;
    }
    node->kind = StatementKind::SetBlock;
    node->expression = parse_filters(nullptr, false);
    node->body = parse_isolated("endset");
    return node;
  }

  StatementPtr parse_macro(Position at) {
    StatementPtr node = make(StatementKind::Macro, at);
    const Token& name = expect_name();
    node->macro.name = name.text;
    node->macro.at = name.position;
    node->target.name = intern(name.text);
    node->target.at = name.position;
    assigned_.insert(node->target.name);
    parse_macro_rest(node->macro, "endmacro", true);
    return node;
  }

  StatementPtr parse_call_block(Position at) {
    StatementPtr node = make(StatementKind::CallBlock, at);
    node->macro.name = "caller";
    node->macro.at = at;
    const bool has_parameters = now().is_operator("(");
    if (has_parameters) parse_signature(node->macro);
    node->expression = parse_expression();
    if (node->expression->kind != ExpressionKind::Call)
      fail(node->expression->at, "a call block needs a call");
    parse_macro_rest(node->macro, "endcall", false);
    return node;
  }

  // Parses the signature (if `signature`) and the body of a macro. The names varargs, kwargs and caller are
  // bound only if the body reads them.
  void parse_macro_rest(MacroDefinition& macro, std::string_view end, bool signature) {
    if (signature) parse_signature(macro);
    const std::set<int32_t> outer = std::exchange(read_, {});
    macro.body = parse_isolated(end);
    const auto id_if_read = [&](const char* word) {
      const int32_t id = intern(word);
      if (read_.count(id) == 0) return -1;
      assigned_.insert(id);
      return id;
    };
    macro.varargs = id_if_read("varargs");
    macro.kwargs = id_if_read("kwargs");
    macro.caller = id_if_read("caller");
    // A name that this body reads is read by the body around it, too.
    read_.insert(outer.begin(), outer.end());
  }

  void parse_signature(MacroDefinition& macro) {
    expect_operator("(");
    while (!now().is_operator(")")) {
      if (!macro.parameters.empty()) expect_operator(",");
      const Token& name = expect_name();
      check_count(macro.parameters.size(), name.position);
      MacroDefinition::Parameter parameter;
      parameter.id = intern(name.text);
      parameter.name = name.text;
      for (const auto& known : macro.parameters) {
        if (known.id == parameter.id) fail(name.position, "parameter '" + name.text + "' is named twice");
      }
      assigned_.insert(parameter.id);
      if (skip_operator("=")) {
        parameter.initial = parse_expression();
      } else if (!macro.parameters.empty() && macro.parameters.back().initial) {
        fail(name.position, "a parameter without a default follows one with a default");
      }
      macro.parameters.push_back(std::move(parameter));
    }
    expect_operator(")");
  }

  StatementPtr parse_filter_block(Position at) {
    StatementPtr node = make(StatementKind::FilterBlock, at);
    node->expression = parse_filters(nullptr, true);
    node->body = parse_isolated("endfilter");
    return node;
  }

  StatementPtr parse_with(Position at) {
    StatementPtr node = make(StatementKind::With, at);
    while (!now().is(TokenKind::BlockEnd)) {
      if (!node->assignments.empty()) expect_operator(",");
      Target target = parse_target(false, {});
      expect_operator("=");
      node->assignments.emplace_back(std::move(target), parse_expression());
    }
    node->body = parse_block({"endwith"});
    take();
    return node;
  }

  StatementPtr parse_print(Position at) {
    StatementPtr node = make(StatementKind::Output, at);
    node->expression = parse_expression();
    return node;
  }

  StatementPtr parse_generation(Position at) {
    StatementPtr node = make(StatementKind::Generation, at);
    node->body = parse_isolated("endgeneration");
    has_generation_ = true;
    return node;
  }

  // Parses a body that runs apart from the loops around it (a macro or a captured text), so that `break` and
  // `continue` must not leave it.
  Body parse_isolated(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body body = parse_block({end});
    take();
    loops_ = loops;
    return body;
  }

  Target parse_target(bool attributes, std::string_view stop) {
    Target first = parse_one_target(attributes);
    if (!now().is_operator(",")) return first;
    Target tuple;
    tuple.is_tuple = true;
    tuple.at = first.at;
    tuple.items.push_back(std::move(first));
    while (skip_operator(",")) {
      if ((!stop.empty() && now().is_name(stop)) || now().is_operator("=") || now().is_operator(")")) break;
      tuple.items.push_back(parse_one_target(attributes));
    }
    return tuple;
  }

  Target parse_one_target(bool attributes) {
    const Nesting nesting(*this);
    if (skip_operator("(")) {
      Target inner = parse_target(attributes, {});
      expect_operator(")");
      return inner;
    }
    const Token& name = expect_name();
    static constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
    if (std::find(std::begin(kConstants), std::end(kConstants), name.text) != std::end(kConstants)) {
      fail(name.position, "cannot assign to '" + name.text + "'");
    }
    Target target;
    target.at = name.position;
    target.name = intern(name.text);
    if (attributes && skip_operator(".")) {
      target.attribute = expect_name().text;
      if (target.attribute[0] == '_')
        fail(name.position, "a template may not set attribute '" + target.attribute + "'");
    } else {
      assigned_.insert(target.name);
    }
    return target;
  }

  int loops_ = 0;
  bool has_generation_ = false;
};

}  // namespace

SyntaxTree parse_template(std::string_view source, std::string_view template_name, Dialect dialect) {
  if (source.size() > kMaxSource) {
    throw Error(ErrorKind::Model, "TEMPLATE-LIMIT", "the template is too long")
        .at(template_name)
        .got(format_bytes(static_cast<int64_t>(source.size())))
        .need("at most " + format_bytes(static_cast<int64_t>(kMaxSource)));
  }
  const int64_t invalid = find_invalid_utf8(source);
  if (invalid >= 0) {
    throw Error(ErrorKind::Model, "TEMPLATE-SYNTAX", "the template is not valid UTF-8")
        .in(std::string(template_name) + ": byte " + std::to_string(invalid));
  }
  return Parser(tokenize(source, template_name, dialect), template_name, dialect).run();
}

}  // namespace tessera::text::jinja
