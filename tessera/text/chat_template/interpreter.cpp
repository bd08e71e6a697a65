#include "tessera/text/chat_template/interpreter.h"

#include <algorithm>

namespace tessera::text::jinja {

// [Note: how a template runs]
// The interpreter walks the syntax tree. A statement appends to a Text, which knows the origin of every byte,
// and returns whether the loop around it is to be left or continued (Flow). An expression gives a Value.
// Every node counts its depth, moves the runtime's position to itself and charges a step, so that a template
// can neither exhaust the stack nor run forever, and errors name the place. Evaluating a child moves the
// position on: code that may fail behind it moves the position back first. As in jinja2, a scope is opened by
// `for` (one for each pass), `with`, a macro and every captured body (set block, call, filter, generation),
// but not by `if`. `set` writes to the innermost scope, so that an assignment inside a loop is not seen
// behind it; only attributes of a namespace outlive their scope.
Text Interpreter::run(const ScopePtr& scope) {
  Text out;
  run_body(tree_.body, scope, out);
  return out;
}

Interpreter::Flow Interpreter::run_body(const Body& body, const ScopePtr& scope, Text& out) {
  for (const auto& node : body) {
    const Flow flow = run_statement(*node, scope, out);
    if (flow != Flow::Normal) return flow;
  }
  return Flow::Normal;
}

Interpreter::Flow Interpreter::run_statement(const Statement& node, const ScopePtr& scope, Text& out) {
  const Depth depth(runtime_);
  runtime_.move_to(node.at);
  runtime_.charge();
  switch (node.kind) {
    case StatementKind::Data:
      runtime_.charge_bytes(node.text.size());
      out.append(node.text);
      break;
    case StatementKind::Output: write(evaluate(*node.expression, scope), out); break;
    case StatementKind::If: return run_if(node, scope, out);
    case StatementKind::For: return run_for(node, scope, out);
    case StatementKind::Set: assign(node.target, evaluate(*node.expression, scope), scope); break;
    case StatementKind::SetBlock: assign(node.target, capture_filtered(node, scope), scope); break;
    case StatementKind::Macro:
      scope->set(node.target.name, Value::of(runtime_.new_macro(&node.macro, scope)));
      break;
    case StatementKind::CallBlock: run_call_block(node, scope, out); break;
    case StatementKind::FilterBlock: write(capture_filtered(node, scope), out); break;
    case StatementKind::With: run_with(node, scope, out); break;
    case StatementKind::Generation: {
      // The mark is set on the finished text, so that it also covers text that came from messages or macros.
      Text inner = capture(node.body, scope);
      runtime_.charge_text(inner);
      inner.mark_generation();
      write(Value::string(runtime_, std::move(inner)), out);
      break;
    }
    case StatementKind::Break: return Flow::Break;
    case StatementKind::Continue: return Flow::Continue;
  }
  return Flow::Normal;
}

Interpreter::Flow Interpreter::run_if(const Statement& node, const ScopePtr& scope, Text& out) {
  for (const Statement::Branch& branch : node.branches) {
    if (!branch.condition || holds(*branch.condition, scope)) return run_body(branch.body, scope, out);
  }
  return Flow::Normal;
}

Interpreter::Flow Interpreter::run_for(const Statement& node, const ScopePtr& scope, Text& out) {
  const Value source = evaluate(*node.expression, scope);
  runtime_.move_to(node.expression->at);
  runtime_.need_defined(source);
  std::vector<Value> items = iterate(runtime_, source);
  if (node.condition) {
    // All items are tested before the first pass, since loop.length and loop.last count the kept ones only.
    std::vector<Value> kept;
    for (Value& item : items) {
      const auto inner = std::make_shared<Scope>(Scope{scope, {}});
      assign(node.target, item, inner);
      if (holds(*node.condition, inner)) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  if (items.empty()) return run_body(node.other, scope, out);
  // A template may store `loop` like any value, so the nesting of its items counts and is limited too.
  const auto loop = std::make_shared<Loop>();
  for (const Value& item : items) loop->nesting = std::max(loop->nesting, 1 + item.depth());
  if (loop->nesting > kMaxValueDepth) runtime_.fail_limit("a value nests more than 128 deep");
  loop->items = std::make_shared<const std::vector<Value>>(std::move(items));
  for (const Value& item : *loop->items) {
    const auto inner = std::make_shared<Scope>(Scope{scope, {}});
    inner->set(node.loop_name, Value::of(loop));
    runtime_.move_to(node.at);
    assign(node.target, item, inner);
    runtime_.charge();
    if (run_body(node.body, inner, out) == Flow::Break) break;
    ++loop->index;
  }
  return Flow::Normal;
}

void Interpreter::run_call_block(const Statement& node, const ScopePtr& scope, Text& out) {
  const Value caller = Value::of(runtime_.new_macro(&node.macro, scope));
  write(evaluate_call(*node.expression, scope, &caller), out);
}

void Interpreter::run_with(const Statement& node, const ScopePtr& scope, Text& out) {
  const auto inner = std::make_shared<Scope>(Scope{scope, {}});
  for (const auto& [target, expression] : node.assignments)
    assign(target, evaluate(*expression, scope), inner);
  run_body(node.body, inner, out);
}

Text Interpreter::capture(const Body& body, const ScopePtr& scope) {
  Text out;
  run_body(body, std::make_shared<Scope>(Scope{scope, {}}), out);
  return out;
}

Value Interpreter::capture_filtered(const Statement& node, const ScopePtr& scope) {
  const Value text = Value::string(runtime_, capture(node.body, scope));
  return node.expression ? evaluate_filter(*node.expression, scope, &text) : text;
}

bool Interpreter::holds(const Expression& condition, const ScopePtr& scope) {
  const Value value = evaluate(condition, scope);
  runtime_.need_defined(value);
  return truth(value);
}

void Interpreter::write(const Value& value, Text& out) {
  runtime_.need_defined(value);
  if (value.is_string()) {
    runtime_.charge_text(value.text());
    out.append(value.text());
    return;
  }
  const Text text = to_text(runtime_, value);
  out.append(text);
}

void Interpreter::assign(const Target& target, const Value& value, const ScopePtr& scope) {
  if (target.is_tuple) {
    const std::vector<Value> items = iterate(runtime_, value);
    if (items.size() != target.items.size()) {
      runtime_.fail("cannot unpack " + std::to_string(items.size()) + " values into " +
                    std::to_string(target.items.size()) + " names");
    }
    for (size_t i = 0; i < items.size(); ++i) assign(target.items[i], items[i], scope);
    return;
  }
  if (target.attribute.empty()) {
    runtime_.charge_items(scope->variables.size());
    scope->set(target.name, value);
    return;
  }
  // Only an attribute of a namespace is left: it is set in place, in whatever scope the namespace lives.
  size_t looked_at = 0;
  const Value* space = scope->find(target.name, looked_at);
  runtime_.charge(static_cast<int64_t>(looked_at / 32));
  runtime_.move_to(target.at);
  if (space == nullptr || !space->is(Kind::Namespace)) {
    runtime_.fail("'" + tree_.names[static_cast<size_t>(target.name)] +
                  "' is not a namespace, so its attributes cannot be set");
  }
  runtime_.charge_items(space->space().attributes.size());
  if (Value* found = space->space().find(target.attribute)) {
    *found = value;
  } else {
    space->space().attributes.emplace_back(target.attribute, value);
  }
}

Value Interpreter::call_macro(const Macro& macro, Arguments arguments) {
  const Depth depth(runtime_);
  const MacroDefinition& definition = *macro.definition;
  // A macro sees the scope in which it was defined, not that of its caller.
  const auto scope = std::make_shared<Scope>(Scope{macro.scope, {}});
  const size_t count = definition.parameters.size();
  const std::string called = "macro '" + definition.name + "'";
  if (arguments.positional.size() > count && definition.varargs < 0) {
    runtime_.fail(called + " takes at most " + std::to_string(count) + " arguments");
  }
  runtime_.charge_items(count * (1 + arguments.keyword.size()));
  Value caller = Value::undefined("no caller is defined");
  std::vector<std::pair<Value, Value>> others;
  std::vector<const Value*> given(count, nullptr);
  for (size_t i = 0; i < std::min(count, arguments.positional.size()); ++i)
    given[i] = &arguments.positional[i];
  for (auto& [name, value] : arguments.keyword) {
    const auto known =
        std::find_if(definition.parameters.begin(), definition.parameters.end(),
                     [&, name = name](const auto& parameter) { return parameter.name == name; });
    if (known != definition.parameters.end()) {
      const Value*& place = given[static_cast<size_t>(known - definition.parameters.begin())];
      if (place != nullptr) runtime_.fail(called + " got argument '" + std::string(name) + "' twice");
      place = &value;
    } else if (name == "caller" && definition.caller >= 0) {
      caller = value;
    } else if (definition.kwargs >= 0) {
      others.emplace_back(Value::string(runtime_, name), value);
    } else {
      runtime_.fail(called + " has no argument '" + std::string(name) + "'");
    }
  }
  // Parameters are set in order, so that a default value may use the parameters before it.
  for (size_t i = 0; i < count; ++i) {
    const MacroDefinition::Parameter& parameter = definition.parameters[i];
    if (given[i] != nullptr) {
      scope->set(parameter.id, *given[i]);
    } else if (parameter.initial) {
      scope->set(parameter.id, evaluate(*parameter.initial, scope));
    } else {
      scope->set(parameter.id, Value::undefined("parameter '" + parameter.name + "' was not provided"));
    }
  }
  if (definition.varargs >= 0) {
    const size_t taken = std::min(count, arguments.positional.size());
    std::vector<Value> rest(arguments.positional.begin() + static_cast<ptrdiff_t>(taken),
                            arguments.positional.end());
    scope->set(definition.varargs, Value::sequence(runtime_, Kind::Tuple, std::move(rest)));
  }
  if (definition.kwargs >= 0) scope->set(definition.kwargs, Value::dict(runtime_, std::move(others)));
  // A parameter that is named `caller` hides the special name.
  if (definition.caller >= 0 && std::none_of(definition.parameters.begin(), definition.parameters.end(),
                                             [&](const auto& p) { return p.id == definition.caller; })) {
    scope->set(definition.caller, caller);
  }
  Text out;
  run_body(definition.body, scope, out);
  return Value::string(runtime_, std::move(out));
}

}  // namespace tessera::text::jinja
