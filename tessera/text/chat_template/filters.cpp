#include "tessera/text/chat_template/filters.h"

#include <algorithm>

#include "tessera/text/python_regex.h"

namespace tessera::text::jinja {
namespace {

Value regex_replace(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  if (!value.is_string())
    runtime.fail("'regex_replace' needs a string, got " + std::string(type_name(value)));
  runtime.charge_walk(value.bytes());
  const PythonRegex pattern(arguments.text(0).bytes, "regex_replace");
  return Value::string(runtime,
                       pattern.replace(value.bytes(), arguments.text(1).bytes, arguments.integer(2, 0)));
}

}  // namespace

const FilterEntry* find_filter(std::string_view name, Dialect dialect) {
  for (const auto* table : {&text_filters(), &sequence_filters(), &task_filters()}) {
    if (table == &task_filters() && dialect != Dialect::Task) continue;
    const auto found =
        std::find_if(table->begin(), table->end(), [&](const FilterEntry& f) { return f.name == name; });
    if (found != table->end()) return &*found;
  }
  return nullptr;
}

const std::vector<FilterEntry>& task_filters() {
  static const std::vector<FilterEntry> kFilters = {
      {"regex_replace", {"pattern", "repl", "count"}, 2, regex_replace}};
  return kFilters;
}

std::vector<std::string> filter_names() {
  std::vector<std::string> names;
  for (const auto* table : {&text_filters(), &sequence_filters()}) {
    for (const FilterEntry& filter : *table) names.emplace_back(filter.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Value apply_filter(Runtime& runtime, const FilterEntry& filter, const Value& input,
                   const Arguments& arguments) {
  runtime.charge();
  if (filter.apply_any != nullptr) return filter.apply_any(runtime, input, arguments);
  return filter.apply(runtime, input,
                      BoundArguments(runtime, filter.name, arguments, filter.parameters, filter.required));
}

}  // namespace tessera::text::jinja
