#include "tessera/ops/cast.h"

#include <limits>

#include <gtest/gtest.h>

#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

TEST(CastTest, RoundsAsLibTorchDoes) {
  for (const int64_t size : {0, 1, 15, 16, 17, 100001}) {
    SCOPED_TRACE(size);
    const at::Tensor from = random_tensor({size}, 1, at::kFloat), to = at::zeros({size}, at::kBFloat16);
    cast_into(to, from);
    EXPECT_TRUE(at::equal(to, from.to(at::kBFloat16)));
  }
}

TEST(CastTest, KeepsWhatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const at::Tensor from = at::tensor({infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), 3.4e38f})
                              .repeat({9}),
                   to = at::zeros({36}, at::kBFloat16);
  cast_into(to, from);
  EXPECT_TRUE(at::equal(to.isnan(), from.isnan()));
  EXPECT_TRUE(at::equal(to.nan_to_num(7.0), from.to(at::kBFloat16).nan_to_num(7.0)));
}

TEST(CastTest, OtherTypesAndLayouts) {
  const at::Tensor from = random_tensor({6, 5}, 2), to = at::zeros({5, 6}, at::kBFloat16).t();
  cast_into(to, from);
  EXPECT_TRUE(at::equal(to, from.to(at::kBFloat16)));
}

}  // namespace
}  // namespace tessera::ops
