#include "tessera/text/task_template.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/utf8.h"
#include "tessera/text/chat_template/interpreter.h"
#include "tessera/text/chat_template/json_text.h"
#include "tessera/text/chat_template/parser.h"

namespace tessera::text {
namespace {

using Json = nlohmann::ordered_json;

// Calls `run` with a runtime of the dialect Task.
template <class Run>
auto in_runtime(std::string_view name, Run&& run) {
  jinja::Runtime runtime(name, std::nullopt);
  runtime.is_strict = true;
  try {
    return run(runtime);
  } catch (const jinja::TextTooLong&) {
    runtime.fail_limit("the template produces a text of more than 8 MiB");
  }
}

bool is_literal(const jinja::Expression& node) {
  using Kind = jinja::ExpressionKind;
  const bool may_have_children = node.kind == Kind::List || node.kind == Kind::Tuple ||
                                 node.kind == Kind::Dict || node.kind == Kind::Negative ||
                                 node.kind == Kind::Positive;
  if (!may_have_children) return node.kind == Kind::Literal;
  return std::ranges::all_of(node.children, [](const auto& child) { return is_literal(*child); });
}

}  // namespace

struct TaskTemplate::Impl {
  std::string name;
  jinja::SyntaxTree tree;

  Impl(std::string_view source, std::string_view title)
      : name(title), tree(jinja::parse_template(source, name, jinja::Dialect::Task)) {}
};

TaskTemplate::TaskTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TaskTemplate::TaskTemplate(TaskTemplate&&) noexcept = default;
TaskTemplate& TaskTemplate::operator=(TaskTemplate&&) noexcept = default;
TaskTemplate::~TaskTemplate() = default;

TaskTemplate TaskTemplate::parse(std::string_view source, std::string_view name) {
  return TaskTemplate(std::make_unique<Impl>(source, name));
}

std::string TaskTemplate::render(const Json& variables) const {
  return in_runtime(impl_->name, [&](jinja::Runtime& runtime) {
    const auto scope = std::make_shared<jinja::Scope>();
    const std::vector<std::string>& names = impl_->tree.names;
    for (size_t i = 0; i < names.size(); ++i) {
      if (const auto found = variables.find(names[i]); found != variables.end())
        scope->set(static_cast<int32_t>(i), jinja::from_json(runtime, *found, {}));
    }
    return jinja::Interpreter(impl_->tree, runtime).run(scope).bytes;
  });
}

Json parse_python_literal(std::string_view text, std::string_view name) {
  const auto refuse = [&](const std::string& why) -> Error {
    return Error(ErrorKind::Model, "TEMPLATE-LITERAL", "the text is no Python literal" + why)
        .in(name)
        .got("'" + std::string(text.substr(0, 200)) + "'");
  };
  if (strip_spaces(text).empty()) throw refuse("");
  // The literals of Jinja's expressions are those of Python.
  const auto tree = [&] {
    try {
      return jinja::parse_template("{{(" + std::string(text) + ")}}", name, jinja::Dialect::Task);
    } catch (const Error& error) {
      throw refuse(": " + std::string(error.message()));
    }
  }();
  const bool is_one = tree.body.size() == 1 && tree.body[0]->kind == jinja::StatementKind::Output &&
                      is_literal(*tree.body[0]->expression);
  if (!is_one) throw refuse("");
  return in_runtime(name, [&](jinja::Runtime& runtime) {
    // Written as JSON by Jinja's own filter, and read again.
    const auto as_json =
        jinja::parse_template("{{(" + std::string(text) + ")|tojson}}", name, jinja::Dialect::Task);
    return Json::parse(jinja::Interpreter(as_json, runtime).run(std::make_shared<jinja::Scope>()).bytes);
  });
}

}  // namespace tessera::text
