// Values that hold while a scope lives, on its thread and wherever LibTorch goes on with the thread's work.
#pragma once

#include <memory>
#include <utility>

#include <c10/util/ThreadLocalDebugInfo.h>

namespace tessera {
namespace detail {

// A value in force. `outer` was in force before; it lives as long as this one is found, as LibTorch's chain
// of infos, which this one is reached through, holds both.
struct Carried : c10::DebugInfoBase {
  explicit Carried(const void* which) : tag(which), outer(innermost()) {}

  // [Note: how scopes travel] at::ThreadLocalState takes the infos of the thread along, and autograd keeps
  // one of these for each backward, whose functions may run on the thread of a device. Of the kinds of info,
  // LibTorch itself never sets this one.
  static constexpr auto kKind = c10::DebugInfoKind::PRODUCER_INFO;
  static const Carried* innermost() {
    return static_cast<const Carried*>(c10::ThreadLocalDebugInfo::get(kKind));
  }

  const void* tag;
  const Carried* outer;
};

}  // namespace detail

// Puts a value of the type T in force until it ends. Scopes nest, those of each type by themselves. The value
// is seen by what runs meanwhile on this thread, by a backward that was called meanwhile, on whatever thread
// its functions run, and under at::ThreadLocalStateGuard; not by the threads of at::parallel_for.
template <class T>
class CarriedScope {
 public:
  explicit CarriedScope(T value)
      : guard_(detail::Carried::kKind, std::make_shared<Value>(std::move(value))) {}
  CarriedScope(const CarriedScope&) = delete;
  CarriedScope& operator=(const CarriedScope&) = delete;

  // The innermost value, or null.
  static const T* current() {
    for (const auto* one = detail::Carried::innermost(); one != nullptr; one = one->outer) {
      if (one->tag == &kTag) return &static_cast<const Value*>(one)->value;
    }
    return nullptr;
  }

 private:
  static inline const char kTag = 0;  // its address stands for T
  struct Value : detail::Carried {
    explicit Value(T held) : Carried(&kTag), value(std::move(held)) {}
    T value;
  };
  c10::DebugInfoGuard guard_;
};

}  // namespace tessera
