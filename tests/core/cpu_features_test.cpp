#include "tessera/core/cpu_features.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "tessera/core/error.h"

namespace tessera {
namespace {

const char* const kVariables[] = {"TESSERA_ISA", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA",
                                  "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS"};

class Guard : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kVariables) unsetenv(name);
  }
  void TearDown() override { SetUp(); }
  static std::string value(const char* name) {
    const char* text = std::getenv(name);
    return text == nullptr ? "" : text;
  }
};

TEST(CpuFeatures, UsesNothingAboveWhatIsThere) {
  EXPECT_LE(usable_isa(), best_isa());
  const CpuFeatures cpu = detect_cpu_features();
  if (best_isa() >= Isa::Avx2) {
    EXPECT_TRUE(cpu.avx2);
  }
  if (best_isa() >= Isa::Avx512) {
    EXPECT_TRUE(cpu.avx512f);
  }
  if (best_isa() >= Isa::Amx) {
    EXPECT_TRUE(cpu.amx_bf16 && cpu.avx512_bf16);
  }
}

TEST_F(Guard, HoldsLibTorchToTheSameInstructions) {
  setenv("TESSERA_ISA", "avx2", 1);
  setenv("MKL_ENABLE_INSTRUCTIONS", "SSE4_2", 1);
  guard_cpu_features();
  EXPECT_EQ(value("ATEN_CPU_CAPABILITY"), "avx2");
  EXPECT_EQ(value("ONEDNN_MAX_CPU_ISA"), "AVX2");
  EXPECT_EQ(value("MKL_ENABLE_INSTRUCTIONS"), "SSE4_2") << "what the user set stays";
}

TEST_F(Guard, LeavesLibTorchAloneWithoutACap) {
  guard_cpu_features();
  EXPECT_EQ(value("ATEN_CPU_CAPABILITY"), "");
  if (!detect_cpu_features().amx_palette_missing) {
    EXPECT_EQ(value("ONEDNN_MAX_CPU_ISA"), "");
  }
}

TEST_F(Guard, RefusesWhatIsNoInstructionSet) {
  setenv("TESSERA_ISA", "avx1024", 1);
  try {
    guard_cpu_features();
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("avx1024"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("baseline, avx2, avx512 or amx"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tessera
