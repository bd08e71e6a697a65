// Compares, while it compiles, declarations of the project with those of a library's header.
#pragma once

#include <cstdint>
#include <type_traits>

#include <gtest/gtest.h>

#include "tests/testing/skip.h"

namespace tessera::testing {

// Tells whether two types are passed and returned alike.
template <class A, class B>
constexpr bool is_like_type() {
  if constexpr ((std::is_enum_v<A> && std::is_enum_v<B>) || (std::is_class_v<A> && std::is_class_v<B>)) {
    return sizeof(A) == sizeof(B) && alignof(A) == alignof(B) && std::is_trivially_copyable_v<A>;
  } else {
    return std::is_same_v<A, B> || (std::is_pointer_v<A> && std::is_pointer_v<B>);
  }
}

template <class F, class G>
struct IsLike : std::false_type {};
template <class R, class S, class... A, class... B>
requires(sizeof...(A) == sizeof...(B)) struct IsLike<R (*)(A...), S (*)(B...)>
    : std::bool_constant<is_like_type<R, S>() && (is_like_type<A, B>() && ...)> {
};
template <class F, class G>
constexpr bool is_like(F, G*) {
  return IsLike<F, G*>::value;
}

// Compares the values of two enumerators.
constexpr bool is(int64_t ours, int64_t theirs) { return ours == theirs; }

}  // namespace tessera::testing

// The test that a file with such assertions consists of: compiling it is what proves it. It is skipped for
// `reason` if this build has not found the header.
#ifdef TESSERA_HAS_HEADER
#define TESSERA_HEADER_TEST(suite, reason) \
  TEST(suite, SaysWhatIsDeclaredHere) {}
#else
#define TESSERA_HEADER_TEST(suite, reason) \
  TEST(suite, SaysWhatIsDeclaredHere) { GTEST_SKIP() << reason; }
#endif
