#include "tessera/text/chat_template/filters.h"
#include "tessera/text/chat_template/functions.h"
#include "tessera/text/chat_template/interpreter.h"
#include "tessera/text/chat_template/is_tests.h"
#include "tessera/text/chat_template/methods.h"
#include "tessera/text/chat_template/operators.h"

namespace tessera::text::jinja {

// See [Note: how a template runs] in interpreter.cpp.
Value Interpreter::evaluate(const Expression& node, const ScopePtr& scope) {
  const Depth depth(runtime_);
  runtime_.move_to(node.at);
  runtime_.charge();
  const auto child = [&](size_t i) { return evaluate(*node.children[i], scope); };
  switch (node.kind) {
    case ExpressionKind::Literal: return node.literal;
    case ExpressionKind::Name: return evaluate_name(node, scope);
    case ExpressionKind::List: return Value::sequence(runtime_, Kind::List, evaluate_all(node, scope));
    case ExpressionKind::Tuple: return Value::sequence(runtime_, Kind::Tuple, evaluate_all(node, scope));
    case ExpressionKind::Dict: return evaluate_dict(node, scope);
    case ExpressionKind::Attribute:
    case ExpressionKind::Item:
    case ExpressionKind::Negative:
    case ExpressionKind::Positive:
    case ExpressionKind::Arithmetic: return evaluate_operator(node, scope);
    case ExpressionKind::Slice: return evaluate_slice(node, scope);
    case ExpressionKind::Call: return evaluate_call(node, scope, nullptr);
    case ExpressionKind::Filter: return evaluate_filter(node, scope, nullptr);
    case ExpressionKind::Test: {
      const Value value = child(0);
      const Arguments arguments = arguments_of(node, scope);
      runtime_.move_to(node.at);
      return Value::boolean(apply_test(runtime_, *node.test, value, arguments));
    }
    case ExpressionKind::Not: return Value::boolean(!holds(*node.children[0], scope));
    case ExpressionKind::Concat: return evaluate_concat(node, scope);
    case ExpressionKind::Compare: return evaluate_compare(node, scope);
    case ExpressionKind::And: {
      Value left = child(0);
      runtime_.need_defined(left);
      return truth(left) ? child(1) : left;
    }
    case ExpressionKind::Or: {
      Value left = child(0);
      runtime_.need_defined(left);
      return truth(left) ? left : child(1);
    }
    case ExpressionKind::Conditional:
      if (holds(*node.children[1], scope)) return child(0);
      if (node.children[2]) return child(2);
      return Value::undefined("the inline if was false and has no else");
  }
  return {};
}

Value Interpreter::evaluate_operator(const Expression& node, const ScopePtr& scope) {
  const Value a = evaluate(*node.children[0], scope);
  const Value b = node.children.size() > 1 ? evaluate(*node.children[1], scope) : Value();
  runtime_.move_to(node.at);
  switch (node.kind) {
    case ExpressionKind::Attribute: return get_attribute(runtime_, a, node.text);
    case ExpressionKind::Item: return get_item(runtime_, a, b);
    case ExpressionKind::Arithmetic: return arithmetic(runtime_, node.op, a, b);
    case ExpressionKind::Negative: return negative(runtime_, a);
    // Like Python's +, this fails for a value that is no number, and makes an int of a boolean.
    default: return negative(runtime_, negative(runtime_, a));
  }
}

Value Interpreter::evaluate_name(const Expression& node, const ScopePtr& scope) {
  size_t looked_at = 0;
  const Value* found = scope->find(node.name, looked_at);
  runtime_.charge(static_cast<int64_t>(looked_at / 32));
  if (found != nullptr) return *found;
  // Functions come last, so that a variable may hide one.
  const std::string& name = tree_.names[static_cast<size_t>(node.name)];
  if (const std::optional<Function> function = find_function(name)) return Value::of(*function);
  return Value::undefined("'" + name + "' is undefined");
}

std::vector<Value> Interpreter::evaluate_all(const Expression& node, const ScopePtr& scope) {
  std::vector<Value> items;
  items.reserve(node.children.size());
  for (const ExpressionPtr& item : node.children) items.push_back(evaluate(*item, scope));
  return items;
}

Value Interpreter::evaluate_dict(const Expression& node, const ScopePtr& scope) {
  std::vector<std::pair<Value, Value>> entries;
  for (size_t i = 0; i < node.children.size(); i += 2) {
    Value key = evaluate(*node.children[i], scope);
    entries.emplace_back(std::move(key), evaluate(*node.children[i + 1], scope));
  }
  return Value::dict(runtime_, std::move(entries));
}

Value Interpreter::evaluate_slice(const Expression& node, const ScopePtr& scope) {
  Value parts[4];
  for (size_t i = 0; i < 4; ++i) {
    if (node.children[i]) parts[i] = evaluate(*node.children[i], scope);
  }
  runtime_.move_to(node.at);
  return get_slice(runtime_, parts[0], parts[1], parts[2], parts[3]);
}

Value Interpreter::evaluate_concat(const Expression& node, const ScopePtr& scope) {
  Text out;
  for (const ExpressionPtr& item : node.children) write(evaluate(*item, scope), out);
  return Value::string(runtime_, std::move(out));
}

bool Interpreter::compare_pair(Comparison comparison, const Value& a, const Value& b) {
  runtime_.need_defined(a);
  runtime_.need_defined(b);
  switch (comparison) {
    case Comparison::Equal: return equals(runtime_, a, b);
    case Comparison::NotEqual: return !equals(runtime_, a, b);
    case Comparison::In: return contains(runtime_, b, a);
    case Comparison::NotIn: return !contains(runtime_, b, a);
    default: break;
  }
  // Every ordering that involves NaN is false, which the result of compare() cannot express.
  const bool unordered = a.is_number() && b.is_number() && (a.real() != a.real() || b.real() != b.real());
  const int relation = compare(runtime_, a, b);
  if (unordered) return false;
  switch (comparison) {
    case Comparison::Less: return relation < 0;
    case Comparison::LessEqual: return relation <= 0;
    case Comparison::Greater: return relation > 0;
    default: return relation >= 0;
  }
}

Value Interpreter::evaluate_compare(const Expression& node, const ScopePtr& scope) {
  Value left = evaluate(*node.children[0], scope);
  for (size_t i = 0; i < node.comparisons.size(); ++i) {
    Value right = evaluate(*node.children[i + 1], scope);
    runtime_.move_to(node.at);
    if (!compare_pair(node.comparisons[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Arguments Interpreter::arguments_of(const Expression& node, const ScopePtr& scope) {
  Arguments arguments;
  for (size_t i = 1; i < node.children.size(); ++i) {
    arguments.positional.push_back(evaluate(*node.children[i], scope));
  }
  for (const auto& [name, value] : node.keywords)
    arguments.keyword.emplace_back(name, evaluate(*value, scope));
  if (node.spread) {
    for (Value& value : iterate(runtime_, evaluate(*node.spread, scope))) {
      arguments.positional.push_back(std::move(value));
    }
  }
  if (node.spread_names) {
    const Value names = evaluate(*node.spread_names, scope);
    if (!names.is(Kind::Dict)) runtime_.fail("what is spread with ** must be a dict");
    runtime_.charge_items(names.dict().entries.size());
    for (const auto& [name, value] : names.dict().entries) {
      if (!name.is_string()) runtime_.fail("names of arguments must be strings");
      if (arguments.keyword.size() == kMaxArguments || name.text().size() > kMaxName)
        runtime_.fail_limit("more than 255 named arguments, or a name of more than 255 bytes");
      arguments.keyword.emplace_back(name.bytes(), value);
    }
  }
  return arguments;
}

Value Interpreter::evaluate_filter(const Expression& node, const ScopePtr& scope, const Value* input) {
  const Depth depth(runtime_);
  // In a filter block, `input` goes down the chain of filters to the innermost one, which has no child.
  Value value;
  if (!node.children[0]) {
    value = *input;
  } else if (input != nullptr) {
    value = evaluate_filter(*node.children[0], scope, input);
  } else {
    value = evaluate(*node.children[0], scope);
  }
  const Arguments arguments = arguments_of(node, scope);
  runtime_.move_to(node.at);
  return apply_filter(runtime_, *node.filter, value, arguments);
}

Value Interpreter::evaluate_call(const Expression& node, const ScopePtr& scope, const Value* caller) {
  const Expression& target = *node.children[0];
  Value callee;
  std::string_view method;
  if (target.kind == ExpressionKind::Attribute) {
    // A method is called on its receiver at once; no bound method is made in between.
    callee = evaluate(*target.children[0], scope);
    runtime_.move_to(target.at);
    method = callee.is_undefined() ? std::string_view() : find_method(callee, target.text);
    if (method.empty()) callee = get_attribute(runtime_, callee, target.text);
  } else {
    callee = evaluate(target, scope);
  }
  Arguments arguments = arguments_of(node, scope);
  if (caller != nullptr) arguments.keyword.emplace_back("caller", *caller);
  runtime_.move_to(node.at);
  if (!method.empty()) return call_method(runtime_, callee, method, arguments);
  return call_value(callee, std::move(arguments));
}

Value Interpreter::call_value(const Value& callee, Arguments arguments) {
  switch (callee.kind()) {
    case Kind::Macro: return call_macro(callee.macro(), std::move(arguments));
    case Kind::Function: return call_function(runtime_, callee.function(), arguments);
    case Kind::Method:
      return call_method(runtime_, callee.method().receiver, callee.method().name, arguments);
    case Kind::Undefined: runtime_.fail(callee.undefined_reason());
    default: runtime_.fail("'" + std::string(type_name(callee)) + "' object is not callable");
  }
}

}  // namespace tessera::text::jinja
