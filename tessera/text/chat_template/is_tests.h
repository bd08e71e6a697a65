// The tests of a template: value is name(arguments).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/text/chat_template/arguments.h"
#include "tessera/text/chat_template/runtime.h"

namespace tessera::text::jinja {

struct TestEntry {
  std::string_view name;
  std::vector<std::string_view> parameters;
  bool (*holds)(Runtime&, const Value&, const BoundArguments&);
};

// Returns the test, or null when there is none of this name.
const TestEntry* find_test(std::string_view name);
std::vector<std::string> test_names();
bool apply_test(Runtime& runtime, const TestEntry& test, const Value& value, const Arguments& arguments);

}  // namespace tessera::text::jinja
