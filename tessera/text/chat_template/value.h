// The values that a template computes with: Python's, as far as chat templates use them.
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
  Generator,  // result of map, selectattr, reverse, ...: iterable once
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
  std::string reason;  // for example "'x' is undefined"
};

struct StringObject : Object {
  Text text;
};

struct Sequence;
struct Dict;
struct MethodObject;

// A value of a template. Copies are cheap: strings and containers are shared and never change. Namespaces and
// macros belong to the Runtime and are only pointed at, so no cycle can leak.
class Value {
 public:
  Value() = default;  // None
  static Value undefined(std::string reason);
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value real(double value);
  // Makes a string of the template's source, which costs no run anything.
  static Value literal(std::string_view text);
  // Makes a string and charges the runtime for it, as the makers below do for their contents.
  static Value string(Runtime& runtime, Text text);
  static Value string(Runtime& runtime, std::string_view text) { return string(runtime, Text(text)); }
  // Makes a sequence; `kind` is one of the five sequence kinds. Fails when the value nests too deeply.
  static Value sequence(Runtime& runtime, Kind kind, std::vector<Value> items, std::string_view name = {},
                        Origin origin = {});
  // Makes a range from its numbers start, start + step, ..., which end before `stop`.
  static Value range(Runtime& runtime, std::vector<Value> items, int64_t stop);
  // Makes a dict. A later entry replaces the value of an earlier one with an equal key.
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
  // The value is an int or a bool, for which Python's isinstance(x, int) holds.
  bool is_integral() const { return kind_ == Kind::Integer || kind_ == Kind::Boolean; }
  bool is_number() const { return is_integral() || kind_ == Kind::Float; }
  bool is_sequence() const { return kind_ >= Kind::List && kind_ <= Kind::Generator; }

  bool boolean() const { return integer_ != 0; }
  int64_t integer() const { return integer_; }  // requires Kind::Integer or Kind::Boolean
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
  // Returns whether both values are the same object, as Python's `is` tells.
  bool same_object(const Value& other) const;
  // Returns how deeply containers nest in the value; 0 for a value that is no container.
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

// The object of a List, Tuple, View, Range or Generator. It is immutable, apart from a generator being used
// up.
struct Sequence : Object {
  std::vector<Value> items;
  Origin origin;          // origin of the whole sequence, if it has one
  std::string_view name;  // name of a view or generator in repr(): "dict_keys"
  int depth = 1;          // 1 + the depth of the deepest item
  int64_t stop = 0;       // end of a range
  mutable bool used_up = false;
};

// The object of a Dict; it keeps the order of its keys.
struct Dict : Object {
  std::vector<std::pair<Value, Value>> entries;
  Origin origin;
  int depth = 1;
};

struct MethodObject : Object {
  Value receiver;
  std::string_view name;  // points into the static table of methods
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
  Value* find(std::string_view name);
};

// The value of the `loop` variable.
struct Loop : Object {
  std::shared_ptr<const std::vector<Value>> items;
  int64_t index = 0;  // loop.index0
  int64_t depth = 0;  // loop.depth0
  int nesting = 1;    // 1 + the depth of the deepest item
};

// Returns Python's type name for messages: "str", "int", "list", ...
std::string_view type_name(const Value& value);

// Returns Python's truth value. Undefined is false; a generator is true.
bool truth(const Value& value);
// Compares as Python's == does. Charges the runtime for the walk.
bool equals(Runtime& runtime, const Value& a, const Value& b);
// Returns <0, 0 or >0. Fails if Python's < would raise a TypeError. NaN compares as greater.
int compare(Runtime& runtime, const Value& a, const Value& b);
// Returns whether Python's hash() accepts the value.
bool hashable(Runtime& runtime, const Value& value);
// Returns whether two texts have the same bytes. Charges the runtime for reading them.
bool same_bytes(Runtime& runtime, std::string_view a, std::string_view b);
const Value* find_key(Runtime& runtime, const Dict& dict, const Value& key);

// Return Python's str() and repr() with the origin of every part. str() of undefined is "".
Text to_text(Runtime& runtime, const Value& value);
Text repr(Runtime& runtime, const Value& value);
std::string float_repr(double value);

// Returns the items that a for loop over the value visits; uses up a generator. Fails when the value cannot
// be iterated.
std::vector<Value> iterate(Runtime& runtime, const Value& value);
// Returns what Jinja's test `iterable` says. It is true of `loop` too, which iterate() refuses.
bool is_iterable(const Value& value);
// Charges the runtime for a change of case, which takes longer for letters outside ASCII.
void charge_case(Runtime& runtime, const Text& text);
// Returns Python's len(); fails for a value that has none.
int64_t length(Runtime& runtime, const Value& value);

}  // namespace tessera::text::jinja
