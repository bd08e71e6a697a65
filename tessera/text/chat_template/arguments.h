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
  // Fails when there are too many, an unknown name, one given twice, or fewer than `required`.
  BoundArguments(Runtime& runtime, std::string_view callee, const Arguments& given,
                 const std::vector<std::string_view>& parameters, size_t required);

  // Null when parameter `index` was not given.
  const Value* get(size_t index) const { return values_[index] ? &*values_[index] : nullptr; }
  bool flag(size_t index, bool otherwise) const;
  // Fails unless an int.
  int64_t integer(size_t index, int64_t otherwise) const;
  // Fails unless a string.
  const Text& text(size_t index) const;

 private:
  Runtime& runtime_;
  std::string_view callee_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace tessera::text::jinja
