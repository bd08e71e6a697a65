#include "tessera/nn/kv_cache.h"

#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/core/memory_ledger.h"
#include "tessera/device/cpu_allocator.h"
#include "tessera/ops/attention.h"

namespace tessera::nn {
namespace {

constexpr int64_t kPage = KvCache::kPageTokens;

void feed(KvCache& cache, int64_t sequence, int64_t tokens) {
  CacheStep step(cache, {sequence}, {0, tokens});
  for (int64_t layer = 0; layer < cache.options().num_layers; ++layer) {
    const at::Tensor kv = at::ones({tokens, cache.options().num_kv_heads, cache.options().head_dim});
    step.attend(layer, kv, kv, kv, {.scale = 1.0, .window = cache.options().window});
  }
  step.finish();
}

TEST(KvCache, PagesFollowTheTokensAndAreUsedAgain) {
  KvCache cache({.num_layers = 2, .num_kv_heads = 1, .head_dim = 4});
  EXPECT_EQ(cache.page_bytes(), 2 * 2 * 4 * kPage * 4);
  const int64_t first = cache.add(), second = cache.add();
  EXPECT_EQ(cache.used_pages(), 0);
  feed(cache, first, kPage);
  EXPECT_EQ(cache.used_pages(), 1);
  feed(cache, first, 1);
  feed(cache, second, 3);
  EXPECT_EQ(cache.length(first), kPage + 1);
  EXPECT_EQ(cache.length(second), 3);
  EXPECT_EQ(cache.used_pages(), 3);
  cache.truncate(first, kPage);
  EXPECT_EQ(cache.length(first), kPage);
  EXPECT_EQ(cache.used_pages(), 2);
  cache.truncate(first, 1000);
  EXPECT_EQ(cache.length(first), kPage);
  cache.free(first);
  EXPECT_EQ(cache.num_sequences(), 1);
  EXPECT_THROW(cache.length(first), Error);
  EXPECT_NE(cache.add(), first);
  feed(cache, second, 2 * kPage);
  EXPECT_EQ(cache.allocated_pages(), 3) << "dropped pages serve again";
}

// A page holds the layers one after the other, each with as many elements as its heads have.
TEST(KvCache, LayersHaveHeadsOfTheirOwn) {
  const std::vector<CachedHeads> heads = {{3, 4}, {1, 6}, {2, 5}};
  KvCache cache({.num_layers = 3, .num_kv_heads = 2, .head_dim = 5, .first_layer = 1, .heads = heads});
  EXPECT_EQ(cache.page_bytes(), 2 * (12 + 6 + 10) * kPage * 4);
  const int64_t sequence = cache.add();
  std::vector<std::vector<at::Tensor>> q(3), kv(3);
  for (const int64_t added : {kPage + 3, int64_t{2}}) {
    CacheStep step(cache, {sequence}, {0, added});
    for (size_t layer = 0; layer < heads.size(); ++layer) {
      const auto [count, size, window] = heads[layer];
      q[layer].push_back(at::randn({added, 2 * count, size}));
      kv[layer].push_back(at::randn({2, added, count, size}));
      const at::Tensor &k = kv[layer].back()[0], &v = kv[layer].back()[1];
      const at::Tensor got = step.attend(static_cast<int64_t>(layer) + 1, q[layer].back(), k, v, {1.0});
      const at::Tensor all = at::cat(kv[layer], 1);
      const at::Tensor want =
          ops::document_attention(at::cat(q[layer]), all[0], all[1], {0, all.size(1)}, {1.0});
      EXPECT_LT((got - want.narrow(0, all.size(1) - added, added)).abs().max().item<double>(), 1e-5) << layer;
    }
    step.finish();
  }
}

// On the host nothing is moved: each page is memory of its own.
TEST(KvCache, ACacheThatGrowsTakesItsPagesAndNoMore) {
  install_cpu_allocator();  // counts allocations
  memory_ledger::start();
  KvCache cache({.num_layers = 4, .num_kv_heads = 4, .head_dim = 64});
  const int64_t sequence = cache.add();
  for (int64_t pages = 1; pages <= 100; ++pages) {
    CacheStep step(cache, {sequence}, {0, kPage});
    step.finish();
    EXPECT_EQ(cache.allocated_pages(), pages);
  }
  memory_ledger::stop();
  const int64_t bytes = memory_ledger::peak().total();
  EXPECT_LE(bytes, 100 * cache.page_bytes());
  EXPECT_GE(bytes, 98 * cache.page_bytes()) << "the peak is known to a mebibyte";
}

TEST(KvCache, PagesBeforeTheWindowGoBack) {
  KvCache cache({.num_layers = 1, .num_kv_heads = 1, .head_dim = 2, .window = kPage + 2});
  const int64_t sequence = cache.add();
  feed(cache, sequence, 2 * kPage);
  EXPECT_EQ(cache.used_pages(), 2) << "the next token sees one token of the first page";
  feed(cache, sequence, 1);
  EXPECT_EQ(cache.used_pages(), 2) << "the first page is gone, a third one begun";
  int64_t most = 0;
  for (int i = 0; i < 200; ++i) {
    feed(cache, sequence, 1);
    most = std::max(most, cache.used_pages());
  }
  EXPECT_EQ(most, 2);
  EXPECT_EQ(cache.allocated_pages(), cache.most_pages(2 * kPage, 1000)) << "what a generator reserves";
  EXPECT_EQ(cache.length(sequence), 2 * kPage + 201);
  {
    const CacheStep step(cache, {sequence}, {0, 1});
    const at::Tensor kv = at::ones({1, 1, 2});
    EXPECT_THROW(step.attend(0, kv, kv, kv, {1.0}), Error) << "a layer without a window";
  }
  // Truncating works only if the window reaches back no farther than the pages that are still there.
  EXPECT_TRUE(cache.can_truncate(sequence, 2 * kPage + 200));
  cache.truncate(sequence, 2 * kPage + 200);
  EXPECT_FALSE(cache.can_truncate(sequence, 2 * kPage));
  EXPECT_THROW(cache.truncate(sequence, 2 * kPage), Error);
  EXPECT_EQ(cache.length(sequence), 2 * kPage + 200);
  cache.free(sequence);
  EXPECT_EQ(cache.used_pages(), 0);
}

TEST(KvCache, AStepCountsWhenItIsFinished) {
  KvCache cache({.num_layers = 1, .num_kv_heads = 1, .head_dim = 2});
  const int64_t sequence = cache.add();
  feed(cache, sequence, 2);
  {
    CacheStep step(cache, {sequence}, {0, 3});
    EXPECT_EQ(step.positions(), (std::vector<int64_t>{2, 3, 4}));
  }
  EXPECT_EQ(cache.length(sequence), 2);
}

TEST(KvCache, AStepThatIsNotFinishedGivesItsPagesBack) {
  KvCache cache({.num_layers = 1, .num_kv_heads = 1, .head_dim = 2});
  const int64_t first = cache.add(), second = cache.add();
  feed(cache, first, 2);
  {
    CacheStep step(cache, {first, second}, {0, 2 * kPage, 3 * kPage});
    EXPECT_EQ(cache.used_pages(), 4);
  }
  EXPECT_EQ(cache.used_pages(), 1);
  {
    CacheStep step(cache, {first, second}, {0, kPage, kPage + 1});
    cache.free(second);
  }
  EXPECT_EQ(cache.used_pages(), 1);
  feed(cache, first, kPage);
  EXPECT_EQ(cache.used_pages(), 2);
  EXPECT_EQ(cache.allocated_pages(), 4);
}

// Feeds a new sequence that many pages with keys that begin with `text`, and returns its number.
int64_t feed_keyed(KvCache& cache, const std::string& text, int64_t pages) {
  const int64_t sequence = cache.add();
  feed(cache, sequence, pages * kPage);
  for (int64_t page = 0; page < pages; ++page) cache.set_key(sequence, page, text + std::to_string(page));
  return sequence;
}

TEST(KvCache, SequencesShareThePagesWithOneKey) {
  KvCache cache({.num_layers = 1, .num_kv_heads = 1, .head_dim = 2, .dtype = at::kFloat, .max_pages = 5});
  const std::vector<PageKey> keys = {"a0", "a1", "a2", "a3"};
  const int64_t first = feed_keyed(cache, "a", 3), second = cache.add();
  ASSERT_EQ(cache.count_known(keys), 3);
  EXPECT_EQ(cache.count_known(std::vector<PageKey>{"x", "a1"}), 0) << "only a beginning counts";
  const std::span<const PageKey> known = std::span(keys).first(2);
  EXPECT_EQ(cache.count_idle(known), 0);
  cache.share(second, known);
  EXPECT_EQ(cache.length(second), 2 * kPage);
  EXPECT_EQ(cache.used_pages(), 3);
  feed(cache, second, kPage);
  EXPECT_EQ(cache.used_pages(), 4) << "new tokens go into a page of their own";
  EXPECT_NE(cache.pages_of(first)[2], cache.pages_of(second)[2]);
  cache.set_key(second, 2, "a2");
  EXPECT_EQ(cache.count_known(keys), 3);
  cache.free(first);
  EXPECT_EQ(cache.used_pages(), 3);
  EXPECT_EQ(cache.count_known(keys), 3) << "a page without a sequence keeps what it holds";
  EXPECT_EQ(cache.count_idle(std::span(keys).first(3)), 1);
  cache.free(second);
  EXPECT_EQ(cache.used_pages(), 0);
  EXPECT_EQ(cache.allocated_pages(), 4);
  // Two sequences may share idle pages.
  const int64_t third = cache.add(), fourth = cache.add();
  for (const int64_t sequence : {third, fourth}) cache.share(sequence, std::span(keys).first(3));
  EXPECT_EQ(cache.used_pages(), 3);
  cache.free(third);
  EXPECT_EQ(cache.used_pages(), 3);
  EXPECT_THROW(cache.truncate(fourth, 2 * kPage + 1), Error) << "the next token would be written into a2";
}

// Pages that are free or new come first, then the idle ones in the order in which they were left; the end of
// a text goes before its beginning.
TEST(KvCache, TheIdlePageThatWasLeftFirstIsTakenFirst) {
  KvCache cache({.num_layers = 1, .num_kv_heads = 1, .head_dim = 2, .dtype = at::kFloat, .max_pages = 6});
  const auto num_known = [&](const std::string& text) {
    return cache.count_known(std::vector<PageKey>{text + "0", text + "1"});
  };
  const int64_t a = feed_keyed(cache, "a", 2), b = feed_keyed(cache, "b", 2);
  cache.free(b);
  cache.free(a);
  const int64_t other = cache.add();
  feed(cache, other, 2 * kPage);
  EXPECT_EQ(num_known("a") + num_known("b"), 4) << "the cache may still grow";
  feed(cache, other, kPage);
  EXPECT_EQ(num_known("b"), 1);
  const int64_t again = cache.add();
  cache.share(again, std::vector<PageKey>{"b0"});
  cache.free(again);
  feed(cache, other, kPage);
  EXPECT_EQ(num_known("a"), 1) << "b was used later";
  feed(cache, other, kPage);
  EXPECT_EQ(num_known("a"), 0);
  EXPECT_EQ(num_known("b"), 1);
  // One more page than there is: nothing is lost.
  const int64_t last = cache.add();
  EXPECT_THROW(CacheStep(cache, {last}, {0, 2 * kPage}), Error);
  EXPECT_EQ(num_known("b"), 1);
  feed(cache, last, 1);
  EXPECT_EQ(num_known("b"), 0);
  EXPECT_EQ(cache.used_pages(), 6);
}

TEST(KvCache, RefusesMoreThanItsBoundAndKeepsWhatItHas) {
  KvCache cache({.num_layers = 1, .num_kv_heads = 1, .head_dim = 2, .dtype = at::kFloat, .max_pages = 2});
  const int64_t first = cache.add(), second = cache.add();
  feed(cache, first, kPage);
  try {
    CacheStep step(cache, {second}, {0, kPage + 1});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), "E-MEMORY-KV-CACHE");
  }
  EXPECT_EQ(cache.used_pages(), 1);
  // The sequence before does not keep the page that it was given, either.
  EXPECT_THROW(CacheStep(cache, {first, second}, {0, 1, kPage + 1}), Error);
  EXPECT_EQ(cache.used_pages(), 1);
  feed(cache, second, kPage);
  EXPECT_THROW(CacheStep(cache, {first, first}, {0, 1, 2}), Error);
}

}  // namespace
}  // namespace tessera::nn
