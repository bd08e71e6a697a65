#include "tessera/text/chat_template/operators.h"

#include <algorithm>
#include <cmath>

#include "tessera/core/utf8.h"
#include "tessera/text/chat_template/methods.h"

namespace tessera::text::jinja {

namespace {

std::string_view symbol(Operator op) {
  static constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<size_t>(op)];
}

[[noreturn]] void fail_types(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) runtime.fail(value->undefined_reason());
  }
  runtime.fail("unsupported operand types for " + std::string(symbol(op)) + ": '" +
               std::string(type_name(a)) + "' and '" + std::string(type_name(b)) + "'");
}

[[noreturn]] void fail_overflow(Runtime& runtime) { runtime.fail_limit("a whole number outside of 64 bits"); }

int64_t floor_divide(Runtime& runtime, int64_t a, int64_t b) {
  if (a == INT64_MIN && b == -1) fail_overflow(runtime);
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t integer_power(Runtime& runtime, int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow(runtime);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow(runtime);
  }
  return result;
}

Value integer_arithmetic(Runtime& runtime, Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::Add: overflow = __builtin_add_overflow(a, b, &result); break;
    case Operator::Subtract: overflow = __builtin_sub_overflow(a, b, &result); break;
    case Operator::Multiply: overflow = __builtin_mul_overflow(a, b, &result); break;
    case Operator::Divide:
      if (b == 0) runtime.fail("division by zero");
      return Value::real(static_cast<double>(a) / static_cast<double>(b));
    case Operator::FloorDivide:
      if (b == 0) runtime.fail("division by zero");
      return Value::integer(floor_divide(runtime, a, b));
    case Operator::Modulo:
      if (b == 0) runtime.fail("division by zero");
      if (b == -1) return Value::integer(0);
      result = a % b;
      return Value::integer(result != 0 && (result < 0) != (b < 0) ? result + b : result);
    case Operator::Power:
      if (b < 0) {
        if (a == 0) runtime.fail("zero to a negative power");
        return Value::real(std::pow(static_cast<double>(a), static_cast<double>(b)));
      }
      return Value::integer(integer_power(runtime, a, b));
  }
  if (overflow) fail_overflow(runtime);
  return Value::integer(result);
}

double float_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

Value float_arithmetic(Runtime& runtime, Operator op, double a, double b) {
  const bool divides = op == Operator::Divide || op == Operator::FloorDivide || op == Operator::Modulo;
  if (divides && b == 0) runtime.fail("division by zero");
  switch (op) {
    case Operator::Add: return Value::real(a + b);
    case Operator::Subtract: return Value::real(a - b);
    case Operator::Multiply: return Value::real(a * b);
    case Operator::Divide: return Value::real(a / b);
    case Operator::FloorDivide: {
      const double exact = (a - float_modulo(a, b)) / b;
      const double down = std::floor(exact);
      return Value::real(exact - down > 0.5 ? down + 1 : down);
    }
    case Operator::Modulo: return Value::real(float_modulo(a, b));
    case Operator::Power: {
      const double result = std::pow(a, b);
      if (a < 0 && std::isnan(result) && !std::isnan(b)) runtime.fail("a root of a negative number");
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
        runtime.fail("a power outside of the range of floats");
      return Value::real(result);
    }
  }
  return {};
}

Value repeat(Runtime& runtime, const Value& value, int64_t count) {
  count = std::max<int64_t>(count, 0);
  if (value.is_string()) {
    const size_t size = value.text().size();
    if (size == 0 || count == 0) return Value::string(runtime, Text());
    if (static_cast<uint64_t>(count) > kMaxText / size) runtime.check_size(kMaxText + 1);
    return Value::string(runtime, repeated(value.text(), count));
  }
  const std::vector<Value>& items = value.items().items;
  if (items.empty()) count = 0;
  if (!items.empty() && static_cast<uint64_t>(count) > kMaxText / items.size()) {
    runtime.fail_limit("a list of more than 8388608 items");
  }
  runtime.charge_items(items.size() * static_cast<size_t>(count));
  std::vector<Value> out;
  for (int64_t i = 0; i < count; ++i) out.insert(out.end(), items.begin(), items.end());
  return Value::sequence(runtime, value.kind(), std::move(out));
}

bool is_list_like(const Value& value) { return value.is(Kind::List) || value.is(Kind::Tuple); }

}  // namespace

Value arithmetic(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return integer_arithmetic(runtime, op, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return float_arithmetic(runtime, op, a.real(), b.real());
  if (op == Operator::Add && a.is_string() && b.is_string()) {
    runtime.charge_text(a.text());
    runtime.charge_text(b.text());
    Text out = a.text();
    out.append(b.text());
    return Value::string(runtime, std::move(out));
  }
  if (op == Operator::Add && a.kind() == b.kind() && is_list_like(a)) {
    runtime.charge_items(a.items().items.size() + b.items().items.size());
    std::vector<Value> items = a.items().items;
    items.insert(items.end(), b.items().items.begin(), b.items().items.end());
    return Value::sequence(runtime, a.kind(), std::move(items));
  }
  if (op == Operator::Multiply) {
    if ((a.is_string() || is_list_like(a)) && b.is_integral()) return repeat(runtime, a, b.integer());
    if (a.is_integral() && (b.is_string() || is_list_like(b))) return repeat(runtime, b, a.integer());
  }
  if (op == Operator::Modulo && a.is_string())
    return Value::string(runtime, format_percent(runtime, a.text(), b));
  fail_types(runtime, op, a, b);
}

Value negative(Runtime& runtime, const Value& value) {
  if (value.is_integral()) return integer_arithmetic(runtime, Operator::Subtract, 0, value.integer());
  if (value.is(Kind::Float)) return Value::real(-value.real());
  if (value.is_undefined()) runtime.fail(value.undefined_reason());
  runtime.fail("bad operand type for a sign: '" + std::string(type_name(value)) + "'");
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      if (item.is_undefined()) runtime.fail(item.undefined_reason());
      runtime.fail("'in <string>' requires a string on its left, not " + std::string(type_name(item)));
    }
    runtime.charge_bytes(container.text().size() + item.text().size());
    return find_in(container.bytes(), item.bytes()) != std::string::npos;
  }
  if (container.is(Kind::Dict)) {
    if (!hashable(runtime, item)) runtime.fail("unhashable type: '" + std::string(type_name(item)) + "'");
    return find_key(runtime, container.dict(), item) != nullptr;
  }
  if (!is_iterable(container)) {
    runtime.fail("argument of type '" + std::string(type_name(container)) + "' is not iterable");
  }
  const std::vector<Value> items = iterate(runtime, container);
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& one) { return equals(runtime, one, item); });
}

namespace {

Value get_loop_attribute(const Loop& loop, std::string_view name) {
  const auto count = static_cast<int64_t>(loop.items->size());
  if (name == "index") return Value::integer(loop.index + 1);
  if (name == "index0") return Value::integer(loop.index);
  if (name == "revindex") return Value::integer(count - loop.index);
  if (name == "revindex0") return Value::integer(count - loop.index - 1);
  if (name == "first") return Value::boolean(loop.index == 0);
  if (name == "last") return Value::boolean(loop.index + 1 == count);
  if (name == "length") return Value::integer(count);
  if (name == "depth") return Value::integer(loop.depth + 1);
  if (name == "depth0") return Value::integer(loop.depth);
  if (name == "previtem") {
    if (loop.index == 0) return Value::undefined("there is no previous item");
    return (*loop.items)[static_cast<size_t>(loop.index - 1)];
  }
  if (name == "nextitem") {
    if (loop.index + 1 >= count) return Value::undefined("there is no next item");
    return (*loop.items)[static_cast<size_t>(loop.index + 1)];
  }
  return Value::undefined("'loop' has no attribute '" + std::string(name) + "'");
}

Value missing(const Value& value, std::string_view key) {
  const std::string owner = value.is(Kind::None) ? "None" : std::string(type_name(value)) + " object";
  return Value::undefined("'" + owner + "' has no attribute " + excerpt(key));
}

}  // namespace

Value get_attribute(Runtime& runtime, const Value& value, std::string_view name) {
  if (value.is_undefined()) runtime.fail(value.undefined_reason());
  const std::string_view method = find_method(value, name);
  if (!method.empty()) return Value::method(value, method);
  if (value.is(Kind::Dict)) {
    runtime.charge_items(value.dict().entries.size());
    for (const auto& [key, item] : value.dict().entries) {
      if (key.is_string() && key.text().size() == name.size() && same_bytes(runtime, key.bytes(), name))
        return item;
    }
  } else if (value.is(Kind::Namespace)) {
    runtime.charge_items(value.space().attributes.size());
    if (const Value* found = value.space().find(name)) return *found;
  } else if (value.is(Kind::Loop)) {
    return get_loop_attribute(value.loop(), name);
  }
  return missing(value, "'" + std::string(name) + "'");
}

Value get_item(Runtime& runtime, const Value& value, const Value& key) {
  if (value.is_undefined()) runtime.fail(value.undefined_reason());
  if (value.is(Kind::Dict) && hashable(runtime, key)) {
    if (const Value* found = find_key(runtime, value.dict(), key)) return *found;
  } else if (key.is_integral() && (value.is_string() || value.is_sequence())) {
    const bool indexable =
        value.is_string() || value.is(Kind::List) || value.is(Kind::Tuple) || value.is(Kind::Range);
    const int64_t count = indexable ? length(runtime, value) : 0;
    const int64_t index = key.integer() < 0 ? key.integer() + count : key.integer();
    if (index >= 0 && index < count) {
      if (value.is_string()) return Value::string(runtime, char_at(value.text(), index));
      return value.items().items[static_cast<size_t>(index)];
    }
  }
  if (key.is_string()) return get_attribute(runtime, value, key.bytes());
  return missing(value, to_text(runtime, key).bytes);
}

Value get_slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
                const Value& step) {
  if (value.is_undefined()) runtime.fail(value.undefined_reason());
  const bool sliceable =
      value.is_string() || value.is(Kind::List) || value.is(Kind::Tuple) || value.is(Kind::Range);
  if (!sliceable) runtime.fail("a '" + std::string(type_name(value)) + "' cannot be sliced");
  for (const Value* bound : {&start, &stop, &step}) {
    if (bound->is_undefined()) runtime.fail(bound->undefined_reason());
    if (!bound->is_integral() && !bound->is(Kind::None))
      runtime.fail("slice bounds must be whole numbers or none");
  }
  const int64_t count = length(runtime, value);
  // A larger step moves past every item, as a step of count + 1 does; the clamp keeps the sums below from
  // overflowing.
  const int64_t stride = step.is(Kind::None) ? 1 : std::clamp(step.integer(), -count - 1, count + 1);
  if (stride == 0) runtime.fail("slice step cannot be zero");
  const auto place = [&](const Value& bound, int64_t otherwise) {
    if (bound.is(Kind::None)) return otherwise;
    const int64_t at = bound.integer() < 0 ? bound.integer() + count : bound.integer();
    return stride > 0 ? std::clamp<int64_t>(at, 0, count) : std::clamp<int64_t>(at, -1, count - 1);
  };
  const int64_t from = place(start, stride > 0 ? 0 : count - 1), to = place(stop, stride > 0 ? count : -1);
  const int64_t distance = stride > 0 ? to - from : from - to;
  const int64_t number = distance <= 0 ? 0 : (distance - 1) / std::abs(stride) + 1;
  if (value.is_string()) {
    runtime.charge_walk(stride == 1 && is_ascii(value.bytes()) ? std::string_view() : value.bytes());
    return Value::string(runtime, slice_of(value.text(), from, stride, number));
  }
  runtime.charge_items(static_cast<size_t>(number));
  std::vector<Value> out;
  for (int64_t i = 0, at = from; i < number; ++i, at += stride)
    out.push_back(value.items().items[static_cast<size_t>(at)]);
  if (value.is(Kind::Range)) {
    const int64_t end =
        out.empty() ? 0 : out.back().integer() + (out.size() < 2 ? 1 : out[1].integer() - out[0].integer());
    return Value::range(runtime, std::move(out), end);
  }
  return Value::sequence(runtime, value.kind(), std::move(out), {}, value.items().origin);
}

}  // namespace tessera::text::jinja
