// The syntax tree of a template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/text/chat_template/runtime.h"
#include "tessera/text/chat_template/value.h"

namespace tessera::text::jinja {

struct FilterEntry;
struct TestEntry;
struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<std::unique_ptr<Statement>>;

enum class ExpressionKind {
  Literal,      // literal
  Name,         // name
  List,         // children
  Tuple,        // children
  Dict,         // children: key, value, key, value...
  Attribute,    // children[0].text
  Item,         // children[0][children[1]]
  Slice,        // children[0][children[1]:children[2]:children[3]]; the last three may be null
  Call,         // children[0](children[1...], keywords)
  Filter,       // children[0] | filter(children[1...], keywords); children[0] is null in a filter block
  Test,         // children[0] is test(children[1...])
  Negative,     // -children[0]
  Positive,     // +children[0]
  Not,          // not children[0]
  Arithmetic,   // children[0] op children[1]
  Concat,       // children joined by ~
  Compare,      // children[0] comparisons[0] children[1] comparisons[1] ...
  And,          // children[0] and children[1]
  Or,           // children[0] or children[1]
  Conditional,  // children[0] if children[1] else children[2], which may be null
};

enum class Operator { Add, Subtract, Multiply, Divide, FloorDivide, Modulo, Power };
enum class Comparison { Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual, In, NotIn };

struct Expression {
  ExpressionKind kind = ExpressionKind::Literal;
  Position at;
  int depth = 1;
  int32_t name = -1;
  Operator op = Operator::Add;
  std::string text;
  Value literal;
  std::vector<ExpressionPtr> children;
  std::vector<std::pair<std::string, ExpressionPtr>> keywords;
  ExpressionPtr spread, spread_names;  // *values and **names of a call, or null
  std::vector<Comparison> comparisons;
  const FilterEntry* filter = nullptr;
  const TestEntry* test = nullptr;
};

// The target of a `set` or `for`: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  int32_t name = -1;
  std::string attribute;
  std::vector<Target> items;
  bool is_tuple = false;
  Position at;
};

struct MacroDefinition {
  struct Parameter {
    int32_t id = -1;
    std::string name;
    ExpressionPtr initial;  // default value, or null
  };
  std::string name;
  Position at;
  std::vector<Parameter> parameters;
  Body body;
  // Ids of the names varargs, kwargs and caller; -1 if the body does not use the name.
  int32_t varargs = -1, kwargs = -1, caller = -1;
};

enum class StatementKind {
  Data,         // text
  Output,       // expression
  If,           // branches; the condition of `else` is null
  For,          // target, expression, condition (or null), body, other (the `else`)
  Set,          // target, expression
  SetBlock,     // target, body, expression: filters on the body, or null
  Macro,        // macro, target (its name)
  CallBlock,    // expression (a call), macro (the caller)
  FilterBlock,  // body, expression: filters on the body
  With,         // assignments, body
  Generation,   // body
  Break,
  Continue,
};

struct Statement {
  struct Branch {
    ExpressionPtr condition;
    Body body;
  };
  StatementKind kind = StatementKind::Data;
  Position at;
  std::string text;
  Target target;
  ExpressionPtr expression, condition;
  std::vector<Branch> branches;
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Body body, other;
  MacroDefinition macro;
  int32_t loop_name = -1;  // id of the name `loop`
};

struct SyntaxTree {
  Body body;
  std::vector<std::string> names;  // name of each id
  bool has_generation = false;
};

}  // namespace tessera::text::jinja
