// Runs the syntax tree of a template.
#pragma once

#include <memory>

#include "tessera/text/chat_template/ast.h"
#include "tessera/text/chat_template/runtime.h"

namespace tessera::text::jinja {

class Interpreter {
 public:
  // Both arguments must outlive the interpreter.
  Interpreter(const SyntaxTree& tree, Runtime& runtime) : tree_(tree), runtime_(runtime) {}

  // Renders the whole template with the variables of `scope`.
  Text run(const std::shared_ptr<Scope>& scope);

 private:
  enum class Flow { Normal, Break, Continue };
  using ScopePtr = std::shared_ptr<Scope>;
  class Depth;

  Flow run_body(const Body& body, const ScopePtr& scope, Text& out);
  Flow run_statement(const Statement& node, const ScopePtr& scope, Text& out);
  Flow run_if(const Statement& node, const ScopePtr& scope, Text& out);
  Flow run_for(const Statement& node, const ScopePtr& scope, Text& out);
  void run_call_block(const Statement& node, const ScopePtr& scope, Text& out);
  void run_with(const Statement& node, const ScopePtr& scope, Text& out);
  // Returns the text that a body writes, run in a scope of its own.
  Text capture(const Body& body, const ScopePtr& scope);
  Value capture_filtered(const Statement& node, const ScopePtr& scope);
  void write(const Value& value, Text& out);
  void assign(const Target& target, const Value& value, const ScopePtr& scope);

  bool holds(const Expression& condition, const ScopePtr& scope);

  Value evaluate(const Expression& node, const ScopePtr& scope);
  // Applies what works on the values of its one or two children alone.
  Value evaluate_operator(const Expression& node, const ScopePtr& scope);
  Value evaluate_name(const Expression& node, const ScopePtr& scope);
  Value evaluate_dict(const Expression& node, const ScopePtr& scope);
  Value evaluate_slice(const Expression& node, const ScopePtr& scope);
  Value evaluate_compare(const Expression& node, const ScopePtr& scope);
  Value evaluate_concat(const Expression& node, const ScopePtr& scope);
  Value evaluate_call(const Expression& node, const ScopePtr& scope, const Value* caller);
  // `input` is the value for the innermost filter of a filter block, whose node has no input in the tree;
  // else null.
  Value evaluate_filter(const Expression& node, const ScopePtr& scope, const Value* input);
  std::vector<Value> evaluate_all(const Expression& node, const ScopePtr& scope);
  bool compare_pair(Comparison comparison, const Value& a, const Value& b);
  Arguments arguments_of(const Expression& node, const ScopePtr& scope);
  Value call_value(const Value& callee, Arguments arguments);
  Value call_macro(const Macro& macro, Arguments arguments);

  const SyntaxTree& tree_;
  Runtime& runtime_;
};

// Counts the nodes under evaluation and refuses too many, so that a template cannot exhaust the stack.
class Interpreter::Depth {
 public:
  explicit Depth(Runtime& runtime) : runtime_(runtime) {
    if (++runtime_.depth > kMaxEvaluationDepth) {
      --runtime_.depth;
      runtime_.fail_limit("the template calls itself too deeply");
    }
  }
  ~Depth() { --runtime_.depth; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Runtime& runtime_;
};

}  // namespace tessera::text::jinja
