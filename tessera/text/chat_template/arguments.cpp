#include "tessera/text/chat_template/arguments.h"

#include <algorithm>

namespace tessera::text::jinja {

BoundArguments::BoundArguments(Runtime& runtime, std::string_view callee, const Arguments& given,
                               const std::vector<std::string_view>& parameters, size_t required)
    : runtime_(runtime), callee_(callee), values_(parameters.size()) {
  const std::string quoted = "'" + std::string(callee) + "'";
  if (given.positional.size() > parameters.size()) {
    runtime.fail(quoted + " takes at most " + std::to_string(parameters.size()) + " arguments, got " +
                 std::to_string(given.positional.size()));
  }
  for (size_t i = 0; i < given.positional.size(); ++i) values_[i] = given.positional[i];
  for (const auto& [name, value] : given.keyword) {
    const auto found = std::find(parameters.begin(), parameters.end(), name);
    if (found == parameters.end()) runtime.fail(quoted + " has no argument '" + std::string(name) + "'");
    std::optional<Value>& place = values_[static_cast<size_t>(found - parameters.begin())];
    if (place) runtime.fail(quoted + " got argument '" + std::string(name) + "' twice");
    place = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i]) runtime.fail(quoted + " needs argument '" + std::string(parameters[i]) + "'");
  }
}

bool BoundArguments::flag(size_t index, bool otherwise) const {
  const Value* value = get(index);
  return value == nullptr ? otherwise : truth(*value);
}

int64_t BoundArguments::integer(size_t index, int64_t otherwise) const {
  const Value* value = get(index);
  if (value == nullptr) return otherwise;
  if (!value->is_integral()) {
    runtime_.fail("'" + std::string(callee_) + "' needs a whole number, got " +
                  std::string(type_name(*value)));
  }
  return value->integer();
}

const Text& BoundArguments::text(size_t index) const {
  const Value& value = *get(index);
  if (!value.is_string()) {
    if (value.is_undefined()) runtime_.fail(value.undefined_reason());
    runtime_.fail("'" + std::string(callee_) + "' needs a string, got " + std::string(type_name(value)));
  }
  return value.text();
}

}  // namespace tessera::text::jinja
