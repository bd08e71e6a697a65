#include "tessera/text/chat_template/methods.h"

#include <algorithm>

#include <unicode/uchar.h>

#include "tessera/core/utf8.h"
#include "tessera/text/chat_template/arguments.h"

namespace tessera::text::jinja {

namespace {

using Apply = Value (*)(Runtime&, const Value&, const BoundArguments&);

struct MethodEntry {
  std::string_view name;
  std::vector<std::string_view> parameters;
  size_t required;
  Apply apply;
};

// Counts the occurrences of `from` that do not overlap, as replace(), split() and count() find them.
size_t occurrences(const Text& text, std::string_view from) {
  if (from.empty()) return static_cast<size_t>(length_of(text.bytes)) + 1;
  size_t count = 0;
  for (size_t at = find_in(text.bytes, from); at != std::string::npos;
       at = find_in(text.bytes, from, at + from.size()))
    ++count;
  return count;
}

// Counts the characters of white space, an upper bound for the cuts of split().
size_t count_spaces(const Text& text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += utf8_step(text.bytes, at))
    count += is_python_space(utf8_decode(text.bytes, at)) ? 1 : 0;
  return count;
}

Value strip_sides(Runtime& runtime, const Value& value, const BoundArguments& arguments, bool left,
                  bool right) {
  std::optional<std::string_view> chars;
  if (arguments.get(0) && !arguments.get(0)->is(Kind::None)) {
    chars = arguments.text(0).bytes;
    runtime.charge_walk(value.bytes());
    runtime.charge(static_cast<int64_t>(chars->size() / 2));
  }
  return Value::string(runtime, strip(value.text(), chars, left, right));
}

Value strip_both(Runtime& r, const Value& v, const BoundArguments& a) {
  return strip_sides(r, v, a, true, true);
}
Value strip_left(Runtime& r, const Value& v, const BoundArguments& a) {
  return strip_sides(r, v, a, true, false);
}
Value strip_right(Runtime& r, const Value& v, const BoundArguments& a) {
  return strip_sides(r, v, a, false, true);
}

Value string_list(Runtime& runtime, std::vector<Text> parts, Kind kind = Kind::List) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (Text& part : parts) items.push_back(Value::string(runtime, std::move(part)));
  return Value::sequence(runtime, kind, std::move(items));
}

Value split_at(Runtime& runtime, const Value& value, const BoundArguments& arguments, bool from_right) {
  std::optional<std::string_view> separator;
  if (arguments.get(0) && !arguments.get(0)->is(Kind::None)) separator = arguments.text(0).bytes;
  if (separator && separator->empty()) runtime.fail("empty separator");
  const int64_t limit = arguments.integer(1, -1);
  runtime.charge_walk(separator ? *separator : std::string_view(value.bytes()));
  const size_t cuts = separator ? occurrences(value.text(), *separator) : count_spaces(value.text());
  runtime.charge(static_cast<int64_t>(limit < 0 ? cuts : std::min(cuts, static_cast<size_t>(limit))));
  return string_list(runtime, split(value.text(), separator, limit, from_right));
}

Value split_left(Runtime& r, const Value& v, const BoundArguments& a) { return split_at(r, v, a, false); }
Value split_right(Runtime& r, const Value& v, const BoundArguments& a) { return split_at(r, v, a, true); }

Value lines(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  runtime.charge_walk(value.bytes());
  runtime.charge(static_cast<int64_t>(count_line_ends(value.bytes())));
  return string_list(runtime, split_lines(value.text(), arguments.flag(0, false)));
}

Value replace_all(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  const Text &from = arguments.text(0), &to = arguments.text(1);
  const int64_t limit = arguments.integer(2, -1);
  runtime.charge_bytes(from.size());
  size_t count = occurrences(value.text(), from.bytes);
  if (limit >= 0) count = std::min(count, static_cast<size_t>(limit));
  if (to.size() > 0 && count > kMaxText / to.size()) runtime.check_size(kMaxText + 1);
  runtime.check_size(value.text().size() + count * to.size() -
                     std::min(count * from.size(), value.text().size()));
  runtime.charge_items(count);
  runtime.charge_bytes(count * (to.size() + to.spans.size() * sizeof(Text::Span)));
  return Value::string(runtime, replace(value.text(), from.bytes, to, limit));
}

// Implements startswith and endswith: the affix is one string or a tuple of strings, with an optional start
// and end.
Value has_affix(Runtime& runtime, const Value& value, const BoundArguments& arguments, bool front) {
  Text within = value.text();
  if (arguments.get(1) || arguments.get(2)) {
    runtime.charge_walk(within.bytes);
    const int64_t count = length_of(within.bytes);
    const auto clamp = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + count : at, 0, count); };
    const int64_t from = clamp(arguments.integer(1, 0)), to = clamp(arguments.integer(2, count));
    if (arguments.integer(1, 0) > count) return Value::boolean(false);
    within = slice_of(within, from, 1, to - from);
  }
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string()) runtime.fail("startswith and endswith need a string or a tuple of strings");
    runtime.charge_bytes(std::min(affix.text().size(), within.size()));
    return front ? within.bytes.starts_with(affix.bytes()) : within.bytes.ends_with(affix.bytes());
  };
  const Value& affix = *arguments.get(0);
  if (affix.is_undefined()) runtime.fail(affix.undefined_reason());
  if (!affix.is(Kind::Tuple)) return Value::boolean(matches(affix));
  const std::vector<Value>& all = affix.items().items;
  return Value::boolean(std::any_of(all.begin(), all.end(), matches));
}

Value starts_with(Runtime& r, const Value& v, const BoundArguments& a) { return has_affix(r, v, a, true); }
Value ends_with(Runtime& r, const Value& v, const BoundArguments& a) { return has_affix(r, v, a, false); }

template <Case change>
Value cased(Runtime& runtime, const Value& value, const BoundArguments&) {
  charge_case(runtime, value.text());
  return Value::string(runtime, change_case(value.text(), change));
}

Value join_items(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  Text out;
  bool first = true;
  for (const Value& item : iterate(runtime, *arguments.get(0))) {
    if (!item.is_string()) runtime.fail("join needs strings, got " + std::string(type_name(item)));
    runtime.charge_text(item.text());
    runtime.charge_text(value.text());
    if (!first) out.append(value.text());
    first = false;
    out.append(item.text());
  }
  return Value::string(runtime, std::move(out));
}

// Returns the position of the first or last occurrence in code points, or -1.
int64_t place_in(Runtime& runtime, const Value& value, const BoundArguments& arguments, bool from_right) {
  const std::string &text = value.bytes(), &what = arguments.text(0).bytes;
  runtime.charge_walk(from_right ? text : what);
  const size_t at = from_right ? find_last_in(text, what) : find_in(text, what);
  return at == std::string::npos ? -1 : length_of(std::string_view(text).substr(0, at));
}

Value find_left(Runtime& r, const Value& v, const BoundArguments& a) {
  return Value::integer(place_in(r, v, a, false));
}
Value find_right(Runtime& r, const Value& v, const BoundArguments& a) {
  return Value::integer(place_in(r, v, a, true));
}
Value index_of(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  const int64_t at = place_in(runtime, value, arguments, false);
  if (at < 0) runtime.fail("substring not found");
  return Value::integer(at);
}

Value count_in(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  runtime.charge_walk(value.bytes());
  runtime.charge_bytes(arguments.text(0).size());
  return Value::integer(static_cast<int64_t>(occurrences(value.text(), arguments.text(0).bytes)));
}

Value partition_at(Runtime& runtime, const Value& value, const BoundArguments& arguments, bool from_right) {
  const Text &text = value.text(), &separator = arguments.text(0);
  if (separator.empty()) runtime.fail("empty separator");
  runtime.charge_walk(from_right ? text.bytes : separator.bytes);
  const size_t at =
      from_right ? find_last_in(text.bytes, separator.bytes) : find_in(text.bytes, separator.bytes);
  if (at == std::string::npos) {
    if (from_right) return string_list(runtime, {Text(), Text(), text}, Kind::Tuple);
    return string_list(runtime, {text, Text(), Text()}, Kind::Tuple);
  }
  const size_t end = at + separator.size();
  return string_list(runtime, {text.part(0, at), separator, text.part(end, text.size())}, Kind::Tuple);
}

Value partition_left(Runtime& r, const Value& v, const BoundArguments& a) {
  return partition_at(r, v, a, false);
}
Value partition_right(Runtime& r, const Value& v, const BoundArguments& a) {
  return partition_at(r, v, a, true);
}

Value remove_prefix(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  const size_t size = arguments.text(0).size();
  const bool has = value.bytes().starts_with(arguments.text(0).bytes);
  return has ? Value::string(runtime, value.text().part(size, value.text().size())) : value;
}

Value remove_suffix(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  const size_t size = arguments.text(0).size();
  const bool has = value.bytes().ends_with(arguments.text(0).bytes);
  return has ? Value::string(runtime, value.text().part(0, value.text().size() - size)) : value;
}

template <bool (*Holds)(int32_t)>
Value all_are(Runtime& runtime, const Value& value, const BoundArguments&) {
  runtime.charge_walk(value.bytes());
  const std::string& text = value.bytes();
  for (size_t at = 0; at < text.size(); at += utf8_step(text, at)) {
    if (!Holds(utf8_decode(text, at))) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

bool is_decimal(int32_t c) { return u_charType(c) == U_DECIMAL_DIGIT_NUMBER; }
bool is_digit(int32_t c) {
  const int32_t type = u_getIntPropertyValue(c, UCHAR_NUMERIC_TYPE);
  return type == U_NT_DECIMAL || type == U_NT_DIGIT;
}
bool is_numeric(int32_t c) { return u_getIntPropertyValue(c, UCHAR_NUMERIC_TYPE) != U_NT_NONE; }
bool is_letter(int32_t c) { return (U_GET_GC_MASK(c) & U_GC_L_MASK) != 0; }
bool is_letter_or_number(int32_t c) { return is_letter(c) || is_numeric(c); }

Value has_case(Runtime& runtime, const Value& value, bool upper) {
  runtime.charge_walk(value.bytes());
  bool any = false;
  const std::string& text = value.bytes();
  for (size_t at = 0; at < text.size(); at += utf8_step(text, at)) {
    const int32_t c = utf8_decode(text, at);
    if (upper ? u_isULowercase(c) || u_istitle(c) : u_isUUppercase(c) || u_istitle(c))
      return Value::boolean(false);
    any = any || (upper ? u_isUUppercase(c) : u_isULowercase(c));
  }
  return Value::boolean(any);
}
Value is_upper(Runtime& r, const Value& v, const BoundArguments&) { return has_case(r, v, true); }
Value is_lower(Runtime& r, const Value& v, const BoundArguments&) { return has_case(r, v, false); }

const std::vector<MethodEntry>& string_methods() {
  static const std::vector<MethodEntry> kMethods = {
      {"strip", {"chars"}, 0, strip_both},
      {"lstrip", {"chars"}, 0, strip_left},
      {"rstrip", {"chars"}, 0, strip_right},
      {"split", {"sep", "maxsplit"}, 0, split_left},
      {"rsplit", {"sep", "maxsplit"}, 0, split_right},
      {"splitlines", {"keepends"}, 0, lines},
      {"replace", {"old", "new", "count"}, 2, replace_all},
      {"startswith", {"prefix", "start", "end"}, 1, starts_with},
      {"endswith", {"suffix", "start", "end"}, 1, ends_with},
      {"upper", {}, 0, cased<Case::Upper>},
      {"lower", {}, 0, cased<Case::Lower>},
      {"casefold", {}, 0, cased<Case::Fold>},
      {"title", {}, 0, cased<Case::Title>},
      {"capitalize", {}, 0, cased<Case::Capitalize>},
      {"join", {"iterable"}, 1, join_items},
      {"find", {"sub"}, 1, find_left},
      {"rfind", {"sub"}, 1, find_right},
      {"index", {"sub"}, 1, index_of},
      {"count", {"sub"}, 1, count_in},
      {"partition", {"sep"}, 1, partition_left},
      {"rpartition", {"sep"}, 1, partition_right},
      {"removeprefix", {"prefix"}, 1, remove_prefix},
      {"removesuffix", {"suffix"}, 1, remove_suffix},
      {"isdigit", {}, 0, all_are<is_digit>},
      {"isdecimal", {}, 0, all_are<is_decimal>},
      {"isnumeric", {}, 0, all_are<is_numeric>},
      {"isalpha", {}, 0, all_are<is_letter>},
      {"isalnum", {}, 0, all_are<is_letter_or_number>},
      {"isspace", {}, 0, all_are<is_python_space>},
      {"isupper", {}, 0, is_upper},
      {"islower", {}, 0, is_lower},
  };
  return kMethods;
}

Value dict_get(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  if (!hashable(runtime, *arguments.get(0)))
    runtime.fail("unhashable type: '" + std::string(type_name(*arguments.get(0))) + "'");
  if (const Value* found = find_key(runtime, value.dict(), *arguments.get(0))) return *found;
  return arguments.get(1) ? *arguments.get(1) : Value();
}

Value dict_keys(Runtime& runtime, const Value& value, const BoundArguments&) {
  runtime.charge_items(value.dict().entries.size());
  std::vector<Value> out;
  for (const auto& [key, item] : value.dict().entries) out.push_back(key);
  return Value::sequence(runtime, Kind::View, std::move(out), "dict_keys");
}

Value dict_values(Runtime& runtime, const Value& value, const BoundArguments&) {
  runtime.charge_items(value.dict().entries.size());
  std::vector<Value> out;
  for (const auto& [key, item] : value.dict().entries) out.push_back(item);
  return Value::sequence(runtime, Kind::View, std::move(out), "dict_values");
}

Value dict_items(Runtime& runtime, const Value& value, const BoundArguments&) {
  std::vector<Value> out;
  for (const auto& [key, item] : value.dict().entries) {
    out.push_back(Value::sequence(runtime, Kind::Tuple, {key, item}));
  }
  return Value::sequence(runtime, Kind::View, std::move(out), "dict_items");
}

Value copy(Runtime&, const Value& value, const BoundArguments&) { return value; }

Value list_index(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  const std::vector<Value>& items = value.items().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (equals(runtime, items[i], *arguments.get(0))) return Value::integer(static_cast<int64_t>(i));
  }
  runtime.fail("the value is not in the list");
}

Value list_count(Runtime& runtime, const Value& value, const BoundArguments& arguments) {
  const std::vector<Value>& items = value.items().items;
  return Value::integer(std::count_if(items.begin(), items.end(), [&](const Value& item) {
    return equals(runtime, item, *arguments.get(0));
  }));
}

// Stands for the methods of Python that change a list or a dict. They exist here so that a template that only
// names them parses; the sandbox refuses a call.
Value refuse_change(Runtime& runtime, const Value&, const BoundArguments&) {
  runtime.fail("a template may not change a list or a dict in place");
}

const std::vector<MethodEntry>& dict_methods() {
  static const std::vector<MethodEntry> kMethods = {
      {"get", {"key", "default"}, 1, dict_get},
      {"keys", {}, 0, dict_keys},
      {"values", {}, 0, dict_values},
      {"items", {}, 0, dict_items},
      {"copy", {}, 0, copy},
      {"clear", {}, 0, refuse_change},
      {"pop", {"key", "default"}, 0, refuse_change},
      {"popitem", {}, 0, refuse_change},
      {"setdefault", {"key", "default"}, 0, refuse_change},
      {"update", {"other"}, 0, refuse_change},
  };
  return kMethods;
}

const std::vector<MethodEntry>& list_methods() {
  static const std::vector<MethodEntry> kMethods = {
      {"index", {"value"}, 1, list_index},
      {"count", {"value"}, 1, list_count},
      {"copy", {}, 0, copy},
      {"append", {"value"}, 0, refuse_change},
      {"clear", {}, 0, refuse_change},
      {"extend", {"values"}, 0, refuse_change},
      {"insert", {"at", "value"}, 0, refuse_change},
      {"pop", {"at"}, 0, refuse_change},
      {"remove", {"value"}, 0, refuse_change},
      {"reverse", {}, 0, refuse_change},
      {"sort", {"key", "reverse"}, 0, refuse_change},
  };
  return kMethods;
}

const std::vector<MethodEntry>& tuple_methods() {
  static const std::vector<MethodEntry> kMethods = {{"index", {"value"}, 1, list_index},
                                                    {"count", {"value"}, 1, list_count}};
  return kMethods;
}

// `cycle` takes any number of arguments, so call_method() handles it itself.
const std::vector<MethodEntry>& loop_methods() {
  static const std::vector<MethodEntry> kMethods = {{"cycle", {}, 0, nullptr}};
  return kMethods;
}

const std::vector<MethodEntry>* methods_of(const Value& value) {
  switch (value.kind()) {
    case Kind::String: return &string_methods();
    case Kind::Dict: return &dict_methods();
    case Kind::List: return &list_methods();
    case Kind::Tuple:
    case Kind::Range: return &tuple_methods();
    case Kind::Loop: return &loop_methods();
    default: return nullptr;
  }
}

const MethodEntry* find_entry(const Value& value, std::string_view name) {
  const std::vector<MethodEntry>* methods = methods_of(value);
  if (methods == nullptr) return nullptr;
  const auto found =
      std::find_if(methods->begin(), methods->end(), [&](const auto& m) { return m.name == name; });
  return found == methods->end() ? nullptr : &*found;
}

}  // namespace

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const auto* methods : {&string_methods(), &dict_methods(), &list_methods(), &loop_methods()}) {
    for (const MethodEntry& method : *methods) {
      if (method.apply != refuse_change) names.emplace_back(method.name);
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

bool is_known_method(std::string_view name) {
  for (const auto* methods : {&string_methods(), &dict_methods(), &list_methods(), &loop_methods()}) {
    for (const MethodEntry& method : *methods) {
      if (method.name == name) return true;
    }
  }
  return false;
}

std::string_view find_method(const Value& value, std::string_view name) {
  const MethodEntry* entry = find_entry(value, name);
  return entry == nullptr ? std::string_view() : entry->name;
}

Value call_method(Runtime& runtime, const Value& receiver, std::string_view name,
                  const Arguments& arguments) {
  if (receiver.is(Kind::Loop)) {
    if (arguments.positional.empty() || !arguments.keyword.empty())
      runtime.fail("cycle needs values to cycle through");
    const auto count = static_cast<int64_t>(arguments.positional.size());
    return arguments.positional[static_cast<size_t>(receiver.loop().index % count)];
  }
  if (receiver.is_string()) runtime.charge_text(receiver.text());
  const MethodEntry& entry = *find_entry(receiver, name);
  return entry.apply(runtime, receiver,
                     BoundArguments(runtime, name, arguments, entry.parameters, entry.required));
}

}  // namespace tessera::text::jinja
