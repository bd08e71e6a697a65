#include "tessera/nn/kv_cache.h"

#include <gtest/gtest.h>

namespace tessera::nn {
namespace {

TEST(KvCache, KeepsWhatWasAppendedThroughGrowth) {
  at::manual_seed(1);
  KvCache cache(2, 3);
  const at::Tensor k = at::randn({11, 2, 4}), v = at::randn({11, 2, 4});
  int64_t done = 0;
  for (const int64_t count : {2, 1, 5, 3}) {
    for (int64_t layer = 0; layer < 2; ++layer) {
      const auto [keys, values] = cache.append(layer, k.narrow(0, done, count) + static_cast<double>(layer),
                                               v.narrow(0, done, count) - static_cast<double>(layer));
      EXPECT_TRUE(at::equal(keys, k.narrow(0, 0, done + count) + static_cast<double>(layer)));
      EXPECT_TRUE(at::equal(values, v.narrow(0, 0, done + count) - static_cast<double>(layer)));
      // The tokens count once they went through all layers.
      EXPECT_EQ(cache.length(), layer == 0 ? done : done + count);
    }
    done += count;
  }
}

TEST(KvCache, TruncateForgetsTheEnd) {
  KvCache cache(1);
  cache.append(0, at::ones({4, 1, 2}), at::ones({4, 1, 2}));
  cache.truncate(1);
  EXPECT_EQ(cache.length(), 1);
  const auto [keys, values] = cache.append(0, at::zeros({1, 1, 2}), at::zeros({1, 1, 2}));
  EXPECT_EQ(keys.size(0), 2);
  EXPECT_EQ(keys.sum().item<float>(), 2.0F);
  EXPECT_EQ(values.sum().item<float>(), 2.0F);
}

}  // namespace
}  // namespace tessera::nn
