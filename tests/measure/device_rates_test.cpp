#include "tessera/measure/device_rates.h"

#include <gtest/gtest.h>

#include "tessera/device/device.h"

namespace tessera::measure {
namespace {

TEST(DeviceRatesTest, EveryRateIsANumberOrSaysWhyNot) {
  const auto rates = measure_device_rates(kHost, {.size = 64, .copy_bytes = 1 << 16, .rounds = 2});
  std::vector<std::string> names;
  for (const DeviceRate& rate : rates) {
    names.push_back(rate.name);
    EXPECT_NE(rate.value > 0.0, !rate.problem.empty()) << rate.name << ": " << rate.value << rate.problem;
    EXPECT_EQ(rate.problem.find('\n'), std::string::npos) << "one line";
    // Every type that all processors have must have a rate.
    EXPECT_TRUE(rate.value > 0.0 || rate.name == "fp8 products") << rate.name << ": " << rate.problem;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"bf16 products", "fp8 products", "float32 products",
                                             "copy on the device"}));
}

}  // namespace
}  // namespace tessera::measure
