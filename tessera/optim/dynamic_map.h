// The maps of bitsandbytes' 8-bit optimizer states.
#pragma once

#include <array>
#include <cstdint>

namespace tessera::optim {

// A map from codes of 8 bits to values in [-1, 1] (signed) or [0, 1], ascending: Dettmers et al., "8-bit
// optimizers via block-wise quantization" (2022), section 3, with the float32 bits of
// bitsandbytes' create_dynamic_map() on processors whose linspace fuses multiplication and addition.
class DynamicMap {
 public:
  static const DynamicMap& of_signed();
  static const DynamicMap& of_unsigned();

  const std::array<float, 256>& values() const { return values_; }
  // The borders between codes: a value above border i has a code above i.
  const std::array<float, 255>& borders() const { return borders_; }

  // Returns the code whose value is nearest to x; of two that are as near, the lower one.
  template <class T>
  uint8_t encode(T x) const;

 private:
  explicit DynamicMap(bool is_signed);

  std::array<float, 256> values_;
  std::array<float, 255> borders_;
  std::array<uint8_t, 65536> guesses_;  // by the upper half of a float32's bits; about the code
};

}  // namespace tessera::optim
