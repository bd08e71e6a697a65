#include "tessera/text/chat_template/is_tests.h"

#include <algorithm>

#include "tessera/text/chat_template/methods.h"
#include "tessera/text/chat_template/operators.h"

namespace tessera::text::jinja {

namespace {

template <Kind kind>
bool is_kind(Runtime&, const Value& value, const BoundArguments&) {
  return value.is(kind);
}

bool is_defined(Runtime&, const Value& value, const BoundArguments&) { return !value.is_undefined(); }
bool is_true(Runtime&, const Value& value, const BoundArguments&) {
  return value.is(Kind::Boolean) && value.boolean();
}
bool is_false(Runtime&, const Value& value, const BoundArguments&) {
  return value.is(Kind::Boolean) && !value.boolean();
}
bool is_number(Runtime&, const Value& value, const BoundArguments&) { return value.is_number(); }
bool can_iterate(Runtime&, const Value& value, const BoundArguments&) { return is_iterable(value); }
// Jinja's test tries len() and []: mappings pass it too, and so does an undefined value.
bool is_sequence(Runtime&, const Value& value, const BoundArguments&) {
  return value.is_undefined() || value.is_string() || value.is(Kind::List) || value.is(Kind::Tuple) ||
         value.is(Kind::Range) || value.is(Kind::Dict);
}
bool is_callable(Runtime&, const Value& value, const BoundArguments&) {
  return value.is(Kind::Macro) || value.is(Kind::Function) || value.is(Kind::Method) || value.is_undefined();
}

int64_t modulo(Runtime& runtime, const Value& value, const Value& divisor) {
  const Value rest = arithmetic(runtime, Operator::Modulo, value, divisor);
  if (!rest.is_number()) runtime.fail("only numbers are odd, even or divisible");
  return rest.real() == 0 ? 0 : rest.real() == 1 ? 1 : 2;
}
bool is_odd(Runtime& runtime, const Value& value, const BoundArguments&) {
  return modulo(runtime, value, Value::integer(2)) == 1;
}
bool is_even(Runtime& runtime, const Value& value, const BoundArguments&) {
  return modulo(runtime, value, Value::integer(2)) == 0;
}
bool is_divisible(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  return modulo(runtime, value, *arguments.get(0)) == 0;
}

bool is_equal(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  return equals(runtime, value, *arguments.get(0));
}
bool is_unequal(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  return !equals(runtime, value, *arguments.get(0));
}
bool is_less(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  return compare(runtime, value, *arguments.get(0)) < 0;
}
bool is_at_most(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  return compare(runtime, value, *arguments.get(0)) <= 0;
}
bool is_greater(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  return compare(runtime, value, *arguments.get(0)) > 0;
}
bool is_at_least(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  return compare(runtime, value, *arguments.get(0)) >= 0;
}
bool is_in(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  return contains(runtime, *arguments.get(0), value);
}
bool is_same(Runtime&, const Value& value, const BoundArguments& arguments) {
  return value.same_object(*arguments.get(0));
}

bool has_case(Runtime& runtime, const Value& value, std::string_view method) {
  const Value text = Value::string(runtime, to_text(runtime, value));
  return call_method(runtime, text, find_method(text, method), {}).boolean();
}
bool is_lower(Runtime& runtime, const Value& value, const BoundArguments&) {
  return has_case(runtime, value, "islower");
}
bool is_upper(Runtime& runtime, const Value& value, const BoundArguments&) {
  return has_case(runtime, value, "isupper");
}

const std::vector<TestEntry>& tests() {
  static const std::vector<TestEntry> kTests = {
      {"defined", {}, is_defined},
      {"undefined", {}, is_kind<Kind::Undefined>},
      {"none", {}, is_kind<Kind::None>},
      {"boolean", {}, is_kind<Kind::Boolean>},
      {"true", {}, is_true},
      {"false", {}, is_false},
      {"integer", {}, is_kind<Kind::Integer>},
      {"float", {}, is_kind<Kind::Float>},
      {"number", {}, is_number},
      {"string", {}, is_kind<Kind::String>},
      {"mapping", {}, is_kind<Kind::Dict>},
      {"sequence", {}, is_sequence},
      {"iterable", {}, can_iterate},
      {"callable", {}, is_callable},
      {"odd", {}, is_odd},
      {"even", {}, is_even},
      {"divisibleby", {"num"}, is_divisible},
      {"in", {"seq"}, is_in},
      {"sameas", {"other"}, is_same},
      {"lower", {}, is_lower},
      {"upper", {}, is_upper},
      {"eq", {"other"}, is_equal},
      {"equalto", {"other"}, is_equal},
      {"==", {"other"}, is_equal},
      {"ne", {"other"}, is_unequal},
      {"!=", {"other"}, is_unequal},
      {"lt", {"other"}, is_less},
      {"lessthan", {"other"}, is_less},
      {"<", {"other"}, is_less},
      {"le", {"other"}, is_at_most},
      {"<=", {"other"}, is_at_most},
      {"gt", {"other"}, is_greater},
      {"greaterthan", {"other"}, is_greater},
      {">", {"other"}, is_greater},
      {"ge", {"other"}, is_at_least},
      {">=", {"other"}, is_at_least},
  };
  return kTests;
}

}  // namespace

const TestEntry* find_test(std::string_view name) {
  const auto found =
      std::find_if(tests().begin(), tests().end(), [&](const TestEntry& t) { return t.name == name; });
  return found == tests().end() ? nullptr : &*found;
}

std::vector<std::string> test_names() {
  std::vector<std::string> names;
  for (const TestEntry& test : tests()) names.emplace_back(test.name);
  std::sort(names.begin(), names.end());
  return names;
}

bool apply_test(Runtime& runtime, const TestEntry& test, const Value& value, const Arguments& arguments) {
  runtime.charge();
  return test.holds(runtime, value,
                    BoundArguments(runtime, test.name, arguments, test.parameters, test.parameters.size()));
}

}  // namespace tessera::text::jinja
