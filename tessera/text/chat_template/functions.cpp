#include "tessera/text/chat_template/functions.h"

#include <chrono>
#include <ctime>

#include "tessera/text/chat_template/arguments.h"

namespace tessera::text::jinja {

namespace {

constexpr std::pair<std::string_view, Function> kFunctions[] = {
    {"range", Function::Range},
    {"dict", Function::Dict},
    {"namespace", Function::Namespace},
    {"raise_exception", Function::RaiseException},
    {"strftime_now", Function::StrftimeNow},
};

Value make_range(Runtime& runtime, const Arguments& given) {
  const BoundArguments arguments(runtime, "range", given, {"start", "stop", "step"}, 1);
  for (size_t i = 0; i < 3; ++i) {
    if (arguments.get(i) && arguments.get(i)->is_undefined())
      runtime.fail(arguments.get(i)->undefined_reason());
  }
  const bool has_stop = arguments.get(1) != nullptr;
  const int64_t start = has_stop ? arguments.integer(0, 0) : 0;
  const int64_t stop = has_stop ? arguments.integer(1, 0) : arguments.integer(0, 0);
  const int64_t step = arguments.integer(2, 1);
  if (step == 0) runtime.fail("range() step must not be zero");
  const bool empty = step > 0 ? start >= stop : start <= stop;
  // The distance and the step cannot overflow as unsigned numbers.
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                     : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const uint64_t count = empty ? 0 : (distance - 1) / stride + 1;
  if (count > static_cast<uint64_t>(kMaxRange)) runtime.fail_limit("a range of more than 100000 numbers");
  runtime.charge_items(count);
  std::vector<Value> items;
  items.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    items.push_back(
        Value::integer(static_cast<int64_t>(static_cast<uint64_t>(start) + i * static_cast<uint64_t>(step))));
  }
  return Value::range(runtime, std::move(items), stop);
}

std::vector<std::pair<Value, Value>> entries_of_call(Runtime& runtime, std::string_view name,
                                                     const Arguments& given) {
  std::vector<std::pair<Value, Value>> entries;
  if (given.positional.size() > 1) runtime.fail(std::string(name) + "() takes one argument and names");
  if (!given.positional.empty()) entries = entries_of(runtime, given.positional[0]);
  for (const auto& [key, value] : given.keyword) entries.emplace_back(Value::string(runtime, key), value);
  return entries;
}

Value make_namespace(Runtime& runtime, const Arguments& given) {
  Namespace* space = runtime.new_namespace();
  for (const auto& [key, value] : entries_of_call(runtime, "namespace", given)) {
    if (!key.is_string()) runtime.fail("a namespace has names only");
    if (key.bytes().starts_with('_'))
      runtime.fail("a template may not set attribute '" + excerpt(key.bytes()) + "'");
    runtime.charge_items(space->attributes.size());
    runtime.charge_bytes(key.text().size());
    if (Value* found = space->find(key.bytes())) {
      *found = value;
    } else {
      space->attributes.emplace_back(key.bytes(), value);
    }
  }
  return Value::of(space);
}

Value formatted_time(Runtime& runtime, const Arguments& given) {
  const BoundArguments arguments(runtime, "strftime_now", given, {"format"}, 1);
  const std::string& format = arguments.text(0).bytes;
  if (format.size() > 1024) runtime.fail_limit("a time format of more than 1024 bytes");
  std::tm parts{};
  if (const std::optional<int64_t> clock = runtime.clock()) {
    const auto seconds = static_cast<std::time_t>(*clock);
    gmtime_r(&seconds, &parts);
  } else {
    const std::time_t seconds = std::time(nullptr);
    localtime_r(&seconds, &parts);
  }
  // strftime returns 0 both for an empty result and for a short buffer; the closing mark makes no result
  // empty.
  std::string out(256 + 64 * format.size(), '\0');
  out.resize(std::strftime(out.data(), out.size(), (format + "|").c_str(), &parts));
  if (!out.empty()) out.pop_back();
  return Value::string(runtime, out);
}

}  // namespace

std::vector<std::pair<Value, Value>> entries_of(Runtime& runtime, const Value& value) {
  if (value.is(Kind::Dict)) {
    runtime.charge_items(2 * value.dict().entries.size());
    return value.dict().entries;
  }
  if (value.is(Kind::Namespace)) {
    std::vector<std::pair<Value, Value>> entries;
    for (const auto& [name, item] : value.space().attributes)
      entries.emplace_back(Value::string(runtime, name), item);
    return entries;
  }
  std::vector<std::pair<Value, Value>> entries;
  for (const Value& pair : iterate(runtime, value)) {
    const std::vector<Value> parts = iterate(runtime, pair);
    if (parts.size() != 2) runtime.fail("a dict is made of pairs");
    entries.emplace_back(parts[0], parts[1]);
  }
  return entries;
}

std::optional<Function> find_function(std::string_view name) {
  for (const auto& [known, function] : kFunctions) {
    if (known == name) return function;
  }
  return std::nullopt;
}

std::vector<std::string> function_names() {
  std::vector<std::string> names;
  for (const auto& [name, function] : kFunctions) names.emplace_back(name);
  return names;
}

Value call_function(Runtime& runtime, Function function, const Arguments& given) {
  switch (function) {
    case Function::Range: return make_range(runtime, given);
    case Function::Dict: return Value::dict(runtime, entries_of_call(runtime, "dict", given));
    case Function::Namespace: return make_namespace(runtime, given);
    case Function::RaiseException: {
      const BoundArguments arguments(runtime, "raise_exception", given, {"message"}, 1);
      runtime.fail_raised(to_text(runtime, *arguments.get(0)).bytes);
    }
    case Function::StrftimeNow: return formatted_time(runtime, given);
  }
  return {};
}

}  // namespace tessera::text::jinja
