#include "tessera/text/chat_template/runtime.h"

#include "tessera/core/error.h"

namespace tessera::text::jinja {

namespace {

// Cuts the text of an error, which a template can make as long as it likes.
std::string shortened(const std::string& what) {
  constexpr size_t kLongest = 2000;
  return what.size() <= kLongest ? what : what.substr(0, kLongest) + "...";
}

}  // namespace

const Value* Scope::find(int32_t name, size_t& looked_at) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [id, value] : scope->variables) {
      ++looked_at;
      if (id == name) return &value;
    }
    ++looked_at;
  }
  return nullptr;
}

void Scope::set(int32_t name, Value value) {
  for (auto& [id, old] : variables) {
    if (id == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

void Runtime::fail(const std::string& what) const {
  throw Error(ErrorKind::Model, "TEMPLATE-RUN", shortened(what)).at(name_, position_.line, position_.column);
}

void Runtime::fail_limit(const std::string& what) const {
  throw Error(ErrorKind::Model, "TEMPLATE-LIMIT", what).at(name_, position_.line, position_.column);
}

void Runtime::fail_raised(const std::string& what) const {
  throw Error(ErrorKind::Model, "TEMPLATE-RAISED",
              "the chat template refuses the conversation: " + shortened(what))
      .at(name_, position_.line, position_.column);
}

}  // namespace tessera::text::jinja
