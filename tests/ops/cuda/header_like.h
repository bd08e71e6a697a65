// Whether a function that is declared here is declared alike in a library's header.
#pragma once

#include <type_traits>

namespace tessera::testing {

template <class A, class B>
constexpr bool kAreEnumsOfOneSize = false;
template <class A, class B>
requires(std::is_enum_v<A>&& std::is_enum_v<B>) constexpr bool kAreEnumsOfOneSize<A, B> = sizeof(A) ==
                                                                                          sizeof(B);

// Two types that are passed and returned alike.
template <class A, class B>
constexpr bool kIsLike = std::is_same_v<A, B> ||
                         (std::is_pointer_v<A> && std::is_pointer_v<B>) || kAreEnumsOfOneSize<A, B>;

template <class F, class G>
struct IsLike : std::false_type {};
template <class R, class S, class... A, class... B>
requires(sizeof...(A) == sizeof...(B)) struct IsLike<R (*)(A...), S (*)(B...)>
    : std::bool_constant<kIsLike<R, S> && (kIsLike<A, B> && ...)> {
};
template <class F, class G>
constexpr bool is_like(F, G*) {
  return IsLike<F, G*>::value;
}

}  // namespace tessera::testing
