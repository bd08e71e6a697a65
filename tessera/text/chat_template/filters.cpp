#include "tessera/text/chat_template/filters.h"

#include <algorithm>

namespace tessera::text::jinja {

const FilterEntry* find_filter(std::string_view name) {
  for (const auto* table : {&text_filters(), &sequence_filters()}) {
    const auto found =
        std::find_if(table->begin(), table->end(), [&](const FilterEntry& f) { return f.name == name; });
    if (found != table->end()) return &*found;
  }
  return nullptr;
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
