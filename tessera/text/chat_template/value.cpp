#include "tessera/text/chat_template/value.h"

#include <algorithm>
#include <cmath>

#include "tessera/core/error.h"
#include "tessera/core/utf8.h"
#include "tessera/text/chat_template/runtime.h"

namespace tessera::text::jinja {

Value Value::undefined(std::string reason) {
  Value value;
  value.kind_ = Kind::Undefined;
  auto info = std::make_shared<UndefinedInfo>();
  info->reason = excerpt(reason);
  value.object_ = std::move(info);
  return value;
}

Value Value::boolean(bool b) {
  Value value;
  value.kind_ = Kind::Boolean;
  value.integer_ = b ? 1 : 0;
  return value;
}

Value Value::integer(int64_t i) {
  Value value;
  value.kind_ = Kind::Integer;
  value.integer_ = i;
  return value;
}

Value Value::real(double d) {
  Value value;
  value.kind_ = Kind::Float;
  value.real_ = d;
  return value;
}

Value Value::literal(std::string_view text) {
  Value value;
  value.kind_ = Kind::String;
  auto object = std::make_shared<StringObject>();
  object->text = Text(text);
  value.object_ = std::move(object);
  return value;
}

Value Value::string(Runtime& runtime, Text text) {
  runtime.charge_text(text);
  Value value;
  value.kind_ = Kind::String;
  auto object = std::make_shared<StringObject>();
  object->text = std::move(text);
  value.object_ = std::move(object);
  return value;
}

Value Value::sequence(Runtime& runtime, Kind kind, std::vector<Value> items, std::string_view name,
                      Origin origin) {
  runtime.charge_items(items.size());
  auto object = std::make_shared<Sequence>();
  for (const Value& item : items) object->depth = std::max(object->depth, 1 + item.depth());
  if (object->depth > kMaxValueDepth) runtime.fail_limit("a value nests more than 128 deep");
  object->items = std::move(items);
  object->name = name;
  object->origin = origin;
  Value value;
  value.kind_ = kind;
  value.object_ = std::move(object);
  return value;
}

Value Value::range(Runtime& runtime, std::vector<Value> items, int64_t stop) {
  Value value = sequence(runtime, Kind::Range, std::move(items), "range");
  static_cast<Sequence&>(*value.object_).stop = stop;
  return value;
}

Value Value::dict(Runtime& runtime, std::vector<std::pair<Value, Value>> entries, Origin origin) {
  runtime.charge_items(entries.size());
  auto object = std::make_shared<Dict>();
  object->origin = origin;
  for (auto& [key, item] : entries) {
    if (!hashable(runtime, key)) runtime.fail("unhashable type: '" + std::string(type_name(key)) + "'");
    object->depth = std::max({object->depth, 1 + item.depth(), 1 + key.depth()});
    if (const Value* found = find_key(runtime, *object, key)) {
      const_cast<Value&>(*found) = std::move(item);
    } else {
      object->entries.emplace_back(std::move(key), std::move(item));
    }
  }
  if (object->depth > kMaxValueDepth) runtime.fail_limit("a value nests more than 128 deep");
  Value value;
  value.kind_ = Kind::Dict;
  value.object_ = std::move(object);
  return value;
}

Value Value::of(jinja::Namespace* space) {
  Value value;
  value.kind_ = Kind::Namespace;
  value.space_ = space;
  return value;
}

Value Value::of(jinja::Macro* macro) {
  Value value;
  value.kind_ = Kind::Macro;
  value.macro_ = macro;
  return value;
}

Value Value::of(Function function) {
  Value value;
  value.kind_ = Kind::Function;
  value.integer_ = static_cast<int64_t>(function);
  return value;
}

Value Value::of(std::shared_ptr<jinja::Loop> loop) {
  Value value;
  value.kind_ = Kind::Loop;
  value.object_ = std::move(loop);
  return value;
}

Value Value::method(Value receiver, std::string_view name) {
  auto object = std::make_shared<MethodObject>();
  object->receiver = std::move(receiver);
  object->name = name;
  Value value;
  value.kind_ = Kind::Method;
  value.object_ = std::move(object);
  return value;
}

const Sequence& Value::items() const { return static_cast<const Sequence&>(*object_); }
const Dict& Value::dict() const { return static_cast<const Dict&>(*object_); }
Loop& Value::loop() const { return static_cast<jinja::Loop&>(*object_); }
const MethodObject& Value::method() const { return static_cast<const MethodObject&>(*object_); }

bool Value::same_object(const Value& other) const {
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::None: return true;
    case Kind::Float: return false;
    case Kind::Namespace: return space_ == other.space_;
    case Kind::Macro: return macro_ == other.macro_;
    default: return object_ == other.object_ && (object_ || integer_ == other.integer_);
  }
}

int Value::depth() const {
  if (is_sequence()) return items().depth;
  if (is(Kind::Dict)) return dict().depth;
  if (is(Kind::Method)) return 1 + method().receiver.depth();
  if (is(Kind::Loop)) return loop().nesting;
  return 0;
}

Value* Namespace::find(std::string_view name) {
  for (auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined: return "Undefined";
    case Kind::None: return "NoneType";
    case Kind::Boolean: return "bool";
    case Kind::Integer: return "int";
    case Kind::Float: return "float";
    case Kind::String: return "str";
    case Kind::List: return "list";
    case Kind::Tuple: return "tuple";
    case Kind::View: return value.items().name;
    case Kind::Range: return "range";
    case Kind::Generator: return "generator";
    case Kind::Dict: return "dict";
    case Kind::Namespace: return "Namespace";
    case Kind::Loop: return "LoopContext";
    case Kind::Macro: return "Macro";
    case Kind::Function: return "function";
    case Kind::Method: return "builtin_function_or_method";
  }
  return "object";
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
    case Kind::None: return false;
    case Kind::Boolean:
    case Kind::Integer: return value.integer() != 0;
    case Kind::Float: return value.real() != 0;
    case Kind::String: return !value.text().empty();
    case Kind::List:
    case Kind::Tuple:
    case Kind::View:
    case Kind::Range: return !value.items().items.empty();
    case Kind::Dict: return !value.dict().entries.empty();
    default: return true;
  }
}

bool equals(Runtime& runtime, const Value& a, const Value& b) {
  runtime.charge();
  if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
  if (a.is_number() && b.is_number()) return a.real() == b.real();
  if (a.kind() != b.kind()) return false;
  if (a.is_undefined() || a.same_object(b)) return true;
  switch (a.kind()) {
    case Kind::String: return same_bytes(runtime, a.bytes(), b.bytes());
    case Kind::List:
    case Kind::Tuple:
    case Kind::Range: {
      const std::vector<Value>&x = a.items().items, &y = b.items().items;
      return x.size() == y.size() &&
             std::equal(x.begin(), x.end(), y.begin(),
                        [&](const Value& l, const Value& r) { return equals(runtime, l, r); });
    }
    case Kind::Dict: {
      if (a.dict().entries.size() != b.dict().entries.size()) return false;
      for (const auto& [key, value] : a.dict().entries) {
        const Value* other = find_key(runtime, b.dict(), key);
        if (other == nullptr || !equals(runtime, value, *other)) return false;
      }
      return true;
    }
    default: return false;
  }
}

int compare(Runtime& runtime, const Value& a, const Value& b) {
  runtime.charge();
  const auto order = [](const auto& x, const auto& y) { return x < y ? -1 : x == y ? 0 : 1; };
  if (a.is_integral() && b.is_integral()) return order(a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return order(a.real(), b.real());
  if (a.is_string() && b.is_string()) {
    runtime.charge_bytes(std::min(a.text().size(), b.text().size()));
    return order(a.bytes(), b.bytes());
  }
  if (a.kind() == b.kind() && (a.is(Kind::List) || a.is(Kind::Tuple))) {
    const std::vector<Value>&x = a.items().items, &y = b.items().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equals(runtime, x[i], y[i])) return compare(runtime, x[i], y[i]);
    }
    return order(x.size(), y.size());
  }
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) runtime.fail(value->undefined_reason());
  }
  runtime.fail("cannot order '" + std::string(type_name(a)) + "' and '" + std::string(type_name(b)) + "'");
}

bool same_bytes(Runtime& runtime, std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  runtime.charge_bytes(a.size());
  return a == b;
}

bool hashable(Runtime& runtime, const Value& value) {
  if (value.is(Kind::Tuple)) {
    runtime.charge();
    return std::all_of(value.items().items.begin(), value.items().items.end(),
                       [&](const Value& item) { return hashable(runtime, item); });
  }
  return !value.is(Kind::List) && !value.is(Kind::Dict) && !value.is(Kind::View);
}

const Value* find_key(Runtime& runtime, const Dict& dict, const Value& key) {
  runtime.charge_items(dict.entries.size());
  if (key.is_string()) {
    for (const auto& [name, value] : dict.entries) {
      if (name.is_string() && name.text().size() == key.text().size() &&
          same_bytes(runtime, name.bytes(), key.bytes()))
        return &value;
    }
    return nullptr;
  }
  for (const auto& [name, value] : dict.entries) {
    if (name.is_string() || !equals(runtime, name, key)) continue;
    return &value;
  }
  return nullptr;
}

bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_sequence() || value.is(Kind::Dict) ||
         value.is(Kind::Loop);
}

std::vector<Value> iterate(Runtime& runtime, const Value& value) {
  std::vector<Value> out;
  if (value.is_undefined()) return out;
  if (value.is_string()) {
    const Text& text = value.text();
    runtime.charge_walk(text.bytes);
    for (size_t at = 0; at < text.size();) {
      const size_t next = at + utf8_step(text.bytes, at);
      out.push_back(Value::string(runtime, text.part(at, next)));
      at = next;
    }
    return out;
  }
  if (value.is_sequence()) {
    const Sequence& sequence = value.items();
    if (value.is(Kind::Generator)) {
      if (sequence.used_up) return out;
      sequence.used_up = true;
    }
    runtime.charge_items(sequence.items.size());
    return sequence.items;
  }
  if (value.is(Kind::Dict)) {
    runtime.charge_items(value.dict().entries.size());
    for (const auto& [key, item] : value.dict().entries) out.push_back(key);
    return out;
  }
  // Jinja would take the next items from the loop that runs.
  if (value.is(Kind::Loop)) runtime.fail("taking the items of 'loop' itself is not supported");
  runtime.fail("'" + std::string(type_name(value)) + "' object is not iterable");
}

void charge_case(Runtime& runtime, const Text& text) {
  runtime.charge(1 + static_cast<int64_t>(text.size() / (is_ascii(text.bytes) ? 64 : 16)));
}

int64_t length(Runtime& runtime, const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) {
    runtime.charge_bytes(value.text().size());
    return length_of(value.bytes());
  }
  if (value.is_sequence() && !value.is(Kind::Generator))
    return static_cast<int64_t>(value.items().items.size());
  if (value.is(Kind::Dict)) return static_cast<int64_t>(value.dict().entries.size());
  if (value.is(Kind::Loop)) return static_cast<int64_t>(value.loop().items->size());
  runtime.fail("object of type '" + std::string(type_name(value)) + "' has no length");
}

}  // namespace tessera::text::jinja
