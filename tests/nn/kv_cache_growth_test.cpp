// Tests of a cache whose pages lie in one tensor for each layer, on a device of little memory.
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/nn/kv_cache.h"

#include "tests/testing/fake_device.h"

namespace tessera::nn {
namespace {

namespace fake = testing::fake_device;

constexpr int64_t kPage = KvCache::kPageTokens, kLayers = 5, kHeads = 2, kHeadDim = 8;
// Bytes of a layer in a page, in float32.
constexpr int64_t kLayerBytes = 2 * kHeads * kHeadDim * kPage * 4;

class GrowthTest : public ::testing::Test {
 protected:
  void SetUp() override { limit(0); }
  void TearDown() override {
    EXPECT_EQ(fake::fault(), "");
    fake::configure({});
  }
  // Limits the memory for all tensors of the device; 0 = no bound.
  static void limit(int64_t bytes) {
    fake::configure({.seed = 11, .longest_delay_us = 50, .most_bytes = bytes});
  }
  static KvCache make_cache(int64_t max_pages = 0) {
    return KvCache({.num_layers = kLayers,
                    .num_kv_heads = kHeads,
                    .head_dim = kHeadDim,
                    .device = fake::device(0),
                    .max_pages = max_pages});
  }
  static void feed(KvCache& cache, int64_t sequence, int64_t pages) {
    CacheStep step(cache, {sequence}, {0, pages * kPage});
    step.finish();
  }
  // Returns the bytes of the cache's tensors.
  static int64_t bytes_of(const KvCache& cache) {
    int64_t bytes = 0;
    for (const at::Tensor& rows : cache.layer_rows()) bytes += static_cast<int64_t>(rows.nbytes());
    return bytes;
  }
  static int64_t bytes_for(int64_t pages) { return kLayers * (pages + 1) * kLayerBytes; }

  // Fills every layer with other values and returns them.
  static std::vector<at::Tensor> fill(const KvCache& cache) {
    std::vector<at::Tensor> values;
    for (const at::Tensor& rows : cache.layer_rows()) {
      values.push_back(at::arange(rows.numel(), at::kFloat).view(rows.sizes()) + std::ssize(values));
      rows.copy_(values.back());
    }
    return values;
  }
  static void expect_kept(const KvCache& cache, const std::vector<at::Tensor>& values, int64_t pages) {
    for (size_t layer = 0; layer < values.size(); ++layer)
      EXPECT_TRUE(at::equal(cache.layer_rows()[layer].narrow(0, 0, pages).to(at::kCPU),
                            values[layer].narrow(0, 0, pages)))
          << layer;
  }
};

TEST_F(GrowthTest, TheOldCacheGoesLayerByLayer) {
  KvCache cache = make_cache();
  const int64_t sequence = cache.add();
  feed(cache, sequence, 64);
  ASSERT_EQ(cache.allocated_pages(), 64);
  EXPECT_EQ(bytes_of(cache), bytes_for(64));
  const std::vector<at::Tensor> values = fill(cache);
  const int64_t moves = cache.num_moves();
  feed(cache, sequence, 1);
  EXPECT_EQ(cache.allocated_pages(), 80) << "a quarter more";
  EXPECT_EQ(bytes_of(cache), bytes_for(80));
  EXPECT_EQ(cache.num_moves(), moves + kLayers);
  expect_kept(cache, values, 64);
}

// Growing needs memory for the new cache and one layer of the old one, to the byte.
TEST_F(GrowthTest, AtThePeakThereIsOneLayerOfTheOldOne) {
  for (const int64_t spare : {0, -1}) {
    limit(0);
    KvCache cache = make_cache();
    const int64_t sequence = cache.add();
    feed(cache, sequence, 100);
    ASSERT_EQ(cache.allocated_pages(), 100) << "as many as are asked for, where those are more";
    const std::vector<at::Tensor> values = fill(cache);
    limit(bytes_for(125) + 101 * kLayerBytes + spare);
    if (spare == 0) {
      feed(cache, sequence, 1);
      EXPECT_EQ(cache.allocated_pages(), 125);
    } else {
      EXPECT_ANY_THROW(feed(cache, sequence, 1));
      EXPECT_EQ(cache.allocated_pages(), 100);
      EXPECT_EQ(cache.used_pages(), 100);
      EXPECT_EQ(cache.length(sequence), 100 * kPage);
    }
    expect_kept(cache, values, 100);
    limit(0);
    feed(cache, sequence, 1);
    EXPECT_EQ(cache.used_pages(), spare == 0 ? 102 : 101);
    EXPECT_EQ(bytes_of(cache), bytes_for(125));
    expect_kept(cache, values, 100);
  }
}

TEST_F(GrowthTest, PagesThatWentBackAreUsedBeforeMore) {
  KvCache cache = make_cache(/*max_pages=*/70);
  const int64_t first = cache.add(), second = cache.add();
  feed(cache, first, 40);
  feed(cache, second, 24);
  EXPECT_EQ(cache.allocated_pages(), 64);
  cache.free(first);
  const int64_t moves = cache.num_moves();
  feed(cache, second, 40);
  EXPECT_EQ(cache.num_moves(), moves);
  feed(cache, second, 6);
  EXPECT_EQ(cache.allocated_pages(), 70) << "no more than the bound";
  EXPECT_THROW(feed(cache, second, 1), Error);
  EXPECT_EQ(cache.used_pages(), 70);
}

// A step that asks for many pages moves the rows once.
TEST_F(GrowthTest, AStepGrowsOnceForAllItsSequences) {
  KvCache cache = make_cache();
  std::vector<int64_t> sequences, starts = {0};
  for (int64_t i = 0; i < 4; ++i) {
    sequences.push_back(cache.add());
    starts.push_back(starts.back() + 50 * kPage);
  }
  CacheStep step(cache, sequences, starts);
  step.finish();
  EXPECT_EQ(cache.num_moves(), kLayers);
  EXPECT_EQ(cache.allocated_pages(), 200);
}

}  // namespace
}  // namespace tessera::nn
