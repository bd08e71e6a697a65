// Values that hold while a scope lives, on its thread and wherever LibTorch goes on with the thread's work.
#pragma once

#include <memory>
#include <utility>

#include <c10/util/ThreadLocalDebugInfo.h>

namespace tessera {
namespace detail {

// A value in force, as an info in the chain of infos that LibTorch keeps for a thread. `outer` is the value
// of any type that was in force before. It lives as long as this one can be found: this one is reached
// through LibTorch's chain, which holds both.
struct Carried : c10::DebugInfoBase {
  explicit Carried(const void* which) : tag(which), outer(innermost()) {}

  // [Note: how scopes travel] at::ThreadLocalState takes the chain of infos of a thread along. Autograd keeps
  // one such state for each backward and puts it in force wherever it runs the backward's functions, which
  // may be the thread of a device. So a value in the chain is seen there; one in a thread_local variable
  // would not be. Values of all types are infos of one kind, the one that LibTorch itself never sets; their
  // tags tell the types apart.
  static constexpr auto kKind = c10::DebugInfoKind::PRODUCER_INFO;
  static const Carried* innermost() {
    return static_cast<const Carried*>(c10::ThreadLocalDebugInfo::get(kKind));
  }

  const void* tag;
  const Carried* outer;
};

}  // namespace detail

// Puts a value of the type T in force until the scope ends. Scopes nest, those of each type by themselves.
// The value is seen by what runs meanwhile on this thread, by a backward that is called meanwhile, on
// whatever thread its functions run, and under at::ThreadLocalStateGuard. The threads of at::parallel_for do
// not see it.
template <class T>
class CarriedScope {
 public:
  explicit CarriedScope(T value)
      : guard_(detail::Carried::kKind, std::make_shared<Value>(std::move(value))) {}
  CarriedScope(const CarriedScope&) = delete;
  CarriedScope& operator=(const CarriedScope&) = delete;

  // The innermost value of the type T in force on this thread, or null.
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
