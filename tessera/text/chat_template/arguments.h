// Binds the arguments of a call to the parameters of a built-in.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tessera/text/chat_template/runtime.h"

namespace tessera::text::jinja {

class BoundArguments {
 public:
  // Fails if there are too many arguments, an unknown name, an argument given twice, or fewer than
  // `required`.
  BoundArguments(Runtime& runtime, std::string_view callee, const Arguments& given,
                 const std::vector<std::string_view>& parameters, size_t required);

  // Returns the argument for parameter `index`, or null when it was not given.
  const Value* get(size_t index) const { return values_[index] ? &*values_[index] : nullptr; }
  bool flag(size_t index, bool otherwise) const;
  // Returns an int argument, or `otherwise` when it was not given. Fails if it is no int.
  int64_t integer(size_t index, int64_t otherwise) const;
  // Returns a string argument. Fails if it is no string.
  const Text& text(size_t index) const;

 private:
  Runtime& runtime_;
  std::string_view callee_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace tessera::text::jinja
