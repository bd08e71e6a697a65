// Tests the tables of other tools against those that their documentation prints.
#include "tessera/measure/known_estimates.h"

#include <gtest/gtest.h>

namespace tessera::measure {
namespace {

// The documentation of DeepSpeed, for t5-3b.
constexpr ModelCounts kT5 = {2'851'598'336, 32'899'072};

TEST(KnownEstimatesTest, Zero2) {
  EXPECT_EQ(deepspeed_zero2_table(kT5, 8, 1, Zero2Formula::Documented),
            "Estimated memory needed for params, optim states and gradients for a:\n"
            "HW: Setup with 1 node, 8 GPUs per node.\n"
            "SW: Model with 2851M total params.\n"
            "  per CPU  |  per GPU |   Options\n"
            "  127.48GB |   5.31GB | offload_optimizer=cpu\n"
            "  127.48GB |  15.93GB | offload_optimizer=none\n");
  const struct {
    int64_t gpus;
    const char *documented, *later;
  } rows[] = {{1, " 53.12GB", " 53.12GB"}, {2, " 31.87GB", " 29.21GB"}, {4, " 21.25GB", " 17.26GB"}};
  for (const auto& [gpus, documented, later] : rows) {
    EXPECT_NE(deepspeed_zero2_table(kT5, gpus, 1, Zero2Formula::Documented).find(documented),
              std::string::npos);
    EXPECT_NE(deepspeed_zero2_table(kT5, gpus, 1, Zero2Formula::Later).find(later), std::string::npos);
  }
}

TEST(KnownEstimatesTest, Zero3) {
  EXPECT_EQ(deepspeed_zero3_table(kT5, 8, 1),
            "Estimated memory needed for params, optim states and gradients for a:\n"
            "HW: Setup with 1 node, 8 GPUs per node.\n"
            "SW: Model with 2851M total params, 32M largest layer params.\n"
            "  per CPU  |  per GPU |   Options\n"
            "   71.71GB |   0.12GB | offload_param=cpu , offload_optimizer=cpu , zero_init=1\n"
            "  127.48GB |   0.12GB | offload_param=cpu , offload_optimizer=cpu , zero_init=0\n"
            "   63.74GB |   0.79GB | offload_param=none, offload_optimizer=cpu , zero_init=1\n"
            "  127.48GB |   0.79GB | offload_param=none, offload_optimizer=cpu , zero_init=0\n"
            "    1.47GB |   6.10GB | offload_param=none, offload_optimizer=none, zero_init=1\n"
            "  127.48GB |   6.10GB | offload_param=none, offload_optimizer=none, zero_init=0\n");
  // The cold form takes numbers in millions.
  const std::string cold = deepspeed_zero3_table({2'851'000'000, 32'000'000}, 8, 1);
  for (const char* const cells : {"71.69GB |   0.12GB", "127.45GB |   0.12GB", "63.72GB |   0.78GB",
                                  "127.45GB |   0.78GB", "1.43GB |   6.09GB", "127.45GB |   6.09GB"})
    EXPECT_NE(cold.find(cells), std::string::npos) << cells;
}

TEST(KnownEstimatesTest, Accelerate) {
  // bert-base-cased: 108,310,272 parameters, of which 28,996 x 768 are the embedding, and two buffers of 512
  // numbers of 8 bytes.
  EXPECT_EQ(accelerate_table("bert-base-cased", 89'075'712, 433'249'280),
            "Memory Usage for loading `bert-base-cased`\n"
            "|  dtype  | Largest Layer | Total Size | Training using Adam |\n"
            "| float32 |   84.95 MB    | 413.18 MB  |       1.61 GB       |\n"
            "| float16 |   42.47 MB    | 206.59 MB  |      826.36 MB      |\n"
            "|  int8   |   21.24 MB    | 103.29 MB  |         N/A         |\n"
            "|  int4   |   10.62 MB    |  51.65 MB  |         N/A         |\n");
}

}  // namespace
}  // namespace tessera::measure
