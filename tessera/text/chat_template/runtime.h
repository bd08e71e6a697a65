// The state of one run of a template: its limits, its clock, and the objects that belong to it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/text/chat_template/value.h"

namespace tessera::text::jinja {

struct MacroDefinition;

// Position in the template's source: 1-based line, 1-based column in code points.
struct Position {
  int32_t line = 0, column = 0;
};

constexpr int64_t kMaxSteps = 1'000'000;
constexpr int64_t kMaxRange = 100'000;      // items of one range()
constexpr int kMaxValueDepth = 128;         // containers nested in containers
constexpr int kMaxEvaluationDepth = 1'200;  // expressions and statements under evaluation at once
constexpr int kMaxSyntaxDepth = 200;        // depth of the syntax tree
constexpr size_t kMaxSource = 1u << 20;     // bytes of a template
constexpr size_t kMaxArguments = 255;       // arguments of a call, and parameters of a macro
constexpr size_t kMaxName = 255;            // bytes of a name

// Variables by the id that the parser gave their name.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<int32_t, Value>> variables;

  // Returns the variable of this scope or the nearest parent that has it, or null. Adds the number of
  // variables that it looked at to `looked_at`.
  const Value* find(int32_t name, size_t& looked_at) const;
  void set(int32_t name, Value value);
};

struct Macro {
  const MacroDefinition* definition = nullptr;
  std::shared_ptr<Scope> scope;  // the scope in which the macro was defined
};

class Runtime {
 public:
  Runtime(std::string_view template_name, std::optional<int64_t> clock)
      : name_(template_name), clock_(clock) {}

  // Throws E-MODEL-TEMPLATE-RUN at the current position.
  [[noreturn]] void fail(const std::string& what) const;
  // Throws E-MODEL-TEMPLATE-LIMIT at the current position.
  [[noreturn]] void fail_limit(const std::string& what) const;
  // Throws E-MODEL-TEMPLATE-RAISED: the template itself refused its input.
  [[noreturn]] void fail_raised(const std::string& what) const;

  // Adds steps to the one budget that bounds the time and the memory of a run. A step is an evaluated node, 8
  // items or 256 bytes that are read or made (whether they are kept or not), or 64 bytes that are looked at
  // one character at a time. Each takes about a microsecond and about 256 bytes, so a run ends in seconds and
  // stays within some hundred MB. Code that makes a value, or walks over one, must charge before it does.
  void charge(int64_t steps = 1) {
    steps_ += steps;
    if (steps_ > kMaxSteps) fail_limit("the template takes more than 1000000 steps");
  }
  void charge_items(size_t count) { charge(1 + static_cast<int64_t>(count / 8)); }
  void charge_bytes(size_t count) { charge(1 + static_cast<int64_t>(count / 256)); }
  void charge_text(const Text& text) { charge_bytes(text.size() + text.spans.size() * sizeof(Text::Span)); }
  void charge_walk(std::string_view text) { charge(1 + static_cast<int64_t>(text.size() / 64)); }
  void check_size(size_t bytes) const {
    if (bytes > kMaxText) fail_limit("the template makes a text of more than 8 MiB");
  }

  void move_to(Position position) { position_ = position; }
  Position position() const { return position_; }

  Namespace* new_namespace() {
    charge();
    return &namespaces_.emplace_back();
  }
  Macro* new_macro(const MacroDefinition* definition, std::shared_ptr<Scope> scope) {
    return &macros_.emplace_back(Macro{definition, std::move(scope)});
  }
  // Returns the time that was set for this run in seconds since 1970, or nullopt for the system's clock.
  std::optional<int64_t> clock() const { return clock_; }

  // Fails for an undefined value in the dialect Task, where such a value may be tested and nothing else.
  void need_defined(const Value& value) const {
    if (is_strict && value.is_undefined()) fail(value.undefined_reason());
  }

  int depth = 0;           // nodes under evaluation
  bool is_strict = false;  // the dialect is Task

 private:
  std::string_view name_;
  std::optional<int64_t> clock_;
  Position position_;
  int64_t steps_ = 0;
  std::deque<Namespace> namespaces_;
  std::deque<Macro> macros_;
};

// The arguments of one call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;
};

}  // namespace tessera::text::jinja
