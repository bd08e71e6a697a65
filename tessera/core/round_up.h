// Sizes in whole units.
#pragma once

namespace tessera {

// Gives the smallest multiple of `unit` that is not below `value`, which is not negative; `unit` is above 0.
template <class Int>
constexpr Int round_up(Int value, Int unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace tessera
