// Sizes in whole units.
#pragma once

namespace tessera {

// The smallest multiple of `unit` that is not below `value`; both not negative, unit > 0.
template <class Int>
constexpr Int round_up(Int value, Int unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace tessera
