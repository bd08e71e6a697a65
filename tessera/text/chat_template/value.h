// The values a template computes with: Python's, as far as chat templates use them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tessera/text/chat_template/text.h"

namespace tessera::text::jinja {

class Runtime;
class Value;
struct Namespace;
struct Macro;
struct Loop;
enum class Function : uint8_t { Range, Dict, Namespace, RaiseException, StrftimeNow };

enum class Kind : uint8_t {
  Undefined,
  None,
  Boolean,
  Integer,
  Float,
  String,
  List,
  Tuple,
  View,       // dict.keys(), dict.values(), dict.items(): iterable and sized, not indexable
  Range,      // sized and indexable
  Generator,  // what map, selectattr, reverse... give: iterable once
  Dict,
  Namespace,
  Loop,
  Macro,
  Function,
  Method,  // a method bound to its receiver
};

struct Object {
  virtual ~Object() = default;
};

struct UndefinedInfo : Object {
  std::string reason;  // "'x' is undefined"
};

struct StringObject : Object {
  Text text;
};

struct Sequence;
struct Dict;
struct MethodObject;

// Copies are cheap: strings and containers are shared and do not change. Namespaces and macros belong to the
// Runtime and are only pointed at, so no cycle can leak.
class Value {
 public:
  Value() = default;  // None
  static Value undefined(std::string reason);
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value real(double value);
  // A string of the template's source, which costs no run anything.
  static Value literal(std::string_view text);
  // Charges the runtime for it, as the other makers do for what they hold.
  static Value string(Runtime& runtime, Text text);
  static Value string(Runtime& runtime, std::string_view text) { return string(runtime, Text(text)); }
  // `kind` is one of the five sequence kinds. Throws the runtime's error when the nesting gets too deep.
  static Value sequence(Runtime& runtime, Kind kind, std::vector<Value> items, std::string_view name = {},
                        Origin origin = {});
  // The numbers start, start + step... of a range that ends before `stop`.
  static Value range(Runtime& runtime, std::vector<Value> items, int64_t stop);
  // Later entries replace earlier ones with an equal key.
  static Value dict(Runtime& runtime, std::vector<std::pair<Value, Value>> entries, Origin origin = {});
  static Value of(Namespace* space);
  static Value of(Macro* macro);
  static Value of(Function function);
  static Value of(std::shared_ptr<Loop> loop);
  static Value method(Value receiver, std::string_view name);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::Undefined; }
  bool is_string() const { return kind_ == Kind::String; }
  // int or bool, as Python's isinstance(x, int).
  bool is_integral() const { return kind_ == Kind::Integer || kind_ == Kind::Boolean; }
  bool is_number() const { return is_integral() || kind_ == Kind::Float; }
  bool is_sequence() const { return kind_ >= Kind::List && kind_ <= Kind::Generator; }

  bool boolean() const { return integer_ != 0; }
  int64_t integer() const { return integer_; }  // of Integer and Boolean
  double real() const { return kind_ == Kind::Float ? real_ : static_cast<double>(integer_); }
  const Text& text() const { return static_cast<const StringObject&>(*object_).text; }
  const std::string& bytes() const { return text().bytes; }
  const Sequence& items() const;
  const Dict& dict() const;
  const std::string& undefined_reason() const { return static_cast<const UndefinedInfo&>(*object_).reason; }
  Namespace& space() const { return *space_; }
  Macro& macro() const { return *macro_; }
  Function function() const { return static_cast<Function>(integer_); }
  Loop& loop() const;
  const MethodObject& method() const;
  // Whether both are the same object.
  bool same_object(const Value& other) const;
  // How deep containers nest in it; 0 of what holds none.
  int depth() const;

 private:
  Kind kind_ = Kind::None;
  union {
    int64_t integer_ = 0;
    double real_;
    Namespace* space_;
    Macro* macro_;
  };
  std::shared_ptr<Object> object_;
};

// List, Tuple, View, Range and Generator. Immutable, apart from a generator being used up.
struct Sequence : Object {
  std::vector<Value> items;
  Origin origin;          // where the whole came from, if from one place
  std::string_view name;  // of a view or generator, for repr: "dict_keys"
  int depth = 1;          // 1 + that of the deepest item
  int64_t stop = 0;       // of a range
  mutable bool used_up = false;
};

// Keeps the order of its keys.
struct Dict : Object {
  std::vector<std::pair<Value, Value>> entries;
  Origin origin;
  int depth = 1;
};

struct MethodObject : Object {
  Value receiver;
  std::string_view name;  // of the static table of methods
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
  Value* find(std::string_view name);
};

// The `loop` variable.
struct Loop : Object {
  std::shared_ptr<const std::vector<Value>> items;
  int64_t index = 0;  // from 0
  int64_t depth = 0;  // from 0
  int nesting = 1;    // 1 + the depth of the deepest item
};

// "str", "int", "list", ...: Python's type name, for messages.
std::string_view type_name(const Value& value);

// Python's truth. Undefined is false; a generator is true.
bool truth(const Value& value);
// Python's ==. Charges the runtime for the walk.
bool equals(Runtime& runtime, const Value& a, const Value& b);
// <0, 0, >0; fails where Python's < would raise a TypeError. NaN compares as greater.
int compare(Runtime& runtime, const Value& a, const Value& b);
// Python's hash() would take it.
bool hashable(Runtime& runtime, const Value& value);
// Whether two texts have the same bytes. Charges the runtime for reading them.
bool same_bytes(Runtime& runtime, std::string_view a, std::string_view b);
const Value* find_key(Runtime& runtime, const Dict& dict, const Value& key);

// Python's str() and repr(), with the origin of every part. str() of undefined is "".
Text to_text(Runtime& runtime, const Value& value);
Text repr(Runtime& runtime, const Value& value);
std::string float_repr(double value);

// The items that a for loop over the value visits; uses up a generator. Fails when it cannot be iterated.
std::vector<Value> iterate(Runtime& runtime, const Value& value);
bool is_iterable(const Value& value);
// Charges the runtime for a change of case, which takes longer for letters outside of ASCII.
void charge_case(Runtime& runtime, const Text& text);
// len(); fails for what has none.
int64_t length(Runtime& runtime, const Value& value);

}  // namespace tessera::text::jinja
