// Jinja templates of tasks for lm-evaluation-harness: texts made of the columns of a document.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace tessera::text {

// Immutable after parsing; render() is thread-safe.
class TaskTemplate {
 public:
  // Parses a template, in which an undefined value is an error, a newline at the end stays, and the filter
  // regex_replace exists. `name` says where the source came from. Throws Error(Model) with line and column in
  // the source.
  static TaskTemplate parse(std::string_view source, std::string_view name);

  TaskTemplate(TaskTemplate&&) noexcept;
  TaskTemplate& operator=(TaskTemplate&&) noexcept;
  ~TaskTemplate();

  // Renders with the members of `variables`, an object. Throws Error(Model).
  std::string render(const nlohmann::ordered_json& variables) const;

 private:
  struct Impl;
  explicit TaskTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Returns the value of a Python literal, such as "['a', \"b\"]" or "(1, None)", as ast.literal_eval() reads
// it; tuples become arrays. Throws Error(Model), naming `name`, for a text that is none.
nlohmann::ordered_json parse_python_literal(std::string_view text, std::string_view name);

}  // namespace tessera::text
