#include "tessera/ops/cached_attention.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/ops/cache_pages.h"

#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

constexpr double kCacheScale = 0.3;
constexpr int64_t kLayers = 2;

struct Lengths {
  int64_t length, added;
};

// Sequences with random keys and values, once in pages and once as plain tensors.
struct World {
  std::vector<Lengths> lengths;
  std::vector<at::Tensor> keys, values;  // [length, kv_heads, head_dim] each
  std::vector<at::Tensor> pages;
  CachedBatch batch;
  int64_t new_tokens = 0;
};

// Fills layer 1 in two steps, first the past and then the new tokens, as generation does.
World make_world(const std::vector<Lengths>& lengths, int64_t kv_heads, int64_t head_dim,
                 at::ScalarType type) {
  World world;
  world.lengths = lengths;
  world.batch = {kv_heads, head_dim, type, {}};
  for (const auto& [length, added] : lengths) {
    const uint64_t seed = 10 * world.keys.size();
    world.keys.push_back(random_tensor({length, kv_heads, head_dim}, seed + 1, type));
    world.values.push_back(random_tensor({length, kv_heads, head_dim}, seed + 2, type));
    CachedSequence sequence{world.new_tokens, added, length, {}};
    for (int64_t begin = 0; begin < length; begin += kCachePageTokens) {
      // The elements of a page that belong to no token must not matter, so they are NaN.
      world.pages.push_back(
          at::full({cache_page_elements(kLayers, kv_heads, head_dim)}, NAN, at::TensorOptions().dtype(type)));
      sequence.pages.push_back(world.pages.back());
    }
    const int64_t past = length - added;
    if (past > 0) {
      CachedBatch earlier{kv_heads, head_dim, type, {{0, past, past, sequence.pages}}};
      write_cache(earlier, 1, world.keys.back().narrow(0, 0, past), world.values.back().narrow(0, 0, past));
    }
    world.new_tokens += added;
    world.batch.sequences.push_back(sequence);
  }
  std::vector<at::Tensor> new_keys, new_values;
  for (size_t i = 0; i < lengths.size(); ++i) {
    new_keys.push_back(world.keys[i].narrow(0, lengths[i].length - lengths[i].added, lengths[i].added));
    new_values.push_back(world.values[i].narrow(0, lengths[i].length - lengths[i].added, lengths[i].added));
  }
  write_cache(world.batch, 1, at::cat(new_keys), at::cat(new_values));
  return world;
}

// Returns the attention of one query [heads, head_dim] to the last keys and values [tokens, kv_heads,
// head_dim], in float64.
at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& all_k, const at::Tensor& all_v,
                           const AttentionFormula& formula) {
  const int64_t tokens = all_k.size(0),
                seen = formula.window == 0 ? tokens : std::min(formula.window, tokens);
  const at::Tensor k = all_k.narrow(0, tokens - seen, seen), v = all_v.narrow(0, tokens - seen, seen);
  const int64_t group = q.size(0) / k.size(1);
  const at::Tensor keys = k.to(at::kDouble).repeat_interleave(group, 1).transpose(0, 1),
                   values = v.to(at::kDouble).repeat_interleave(group, 1).transpose(0, 1);
  at::Tensor scores = at::matmul(keys, q.to(at::kDouble).unsqueeze(2)).squeeze(2) * formula.scale;
  if (formula.soft_cap > 0) scores = formula.soft_cap * at::tanh(scores / formula.soft_cap);
  if (formula.sinks.defined()) scores = at::cat({scores, formula.sinks.to(at::kDouble).unsqueeze(1)}, 1);
  return at::matmul(at::softmax(scores, -1).narrow(1, 0, seen).unsqueeze(1), values).squeeze(1);
}

at::Tensor plain_cached(const World& world, const at::Tensor& q,
                        const AttentionFormula& formula = {kCacheScale}) {
  std::vector<at::Tensor> rows;
  for (size_t i = 0; i < world.lengths.size(); ++i) {
    const auto [length, added] = world.lengths[i];
    for (int64_t token = length - added; token < length; ++token) {
      rows.push_back(plain_attention(q[static_cast<int64_t>(rows.size())],
                                     world.keys[i].narrow(0, 0, token + 1),
                                     world.values[i].narrow(0, 0, token + 1), formula));
    }
  }
  return at::stack(rows);
}

TEST(CachedAttention, EqualsThePlainFormula) {
  const std::vector<std::vector<Lengths>> batches = {{{1, 1}},
                                                     {{33, 1}},
                                                     {{31, 31}, {5, 1}, {64, 1}},
                                                     {{1100, 1}, {40, 7}, {513, 3}, {512, 1}},
                                                     {{24, 24}, {1100, 90}, {600, 23}, {65, 1}, {700, 24}}};
  struct Heads {
    int64_t heads, kv_heads, head_dim;
  };
  for (const auto& lengths : batches) {
    for (const auto& [heads, kv_heads, head_dim] : {Heads{9, 3, 64}, Heads{4, 4, 5}, Heads{7, 1, 33}}) {
      for (const auto& [type, tolerance] :
           {std::pair{at::kDouble, 1e-13}, {at::kFloat, 2e-6}, {at::kBFloat16, 5e-3}}) {
        SCOPED_TRACE(::testing::Message() << lengths.size() << " sequences, " << heads << " heads of "
                                          << head_dim << ", " << at::toString(type));
        const World world = make_world(lengths, kv_heads, head_dim, type);
        const at::Tensor q = random_tensor({world.new_tokens, heads, head_dim}, 99, type);
        const at::Tensor got = cached_attention(q, world.batch, 1, {kCacheScale}),
                         want = plain_cached(world, q);
        ASSERT_EQ(got.scalar_type(), type);
        EXPECT_TRUE(at::allclose(got.to(at::kDouble), want, tolerance, tolerance))
            << (got.to(at::kDouble) - want).abs().max().item<double>();
      }
    }
  }
}

// Pages that no query of the batch sees are undefined tensors here, so reading one would fail.
TEST(CachedAttention, WindowsSoftCapsAndSinksEqualThePlainFormula) {
  for (const AttentionFormula& formula :
       {AttentionFormula{kCacheScale, true, 1}, AttentionFormula{kCacheScale, true, 33},
        AttentionFormula{kCacheScale, true, 600}, AttentionFormula{kCacheScale, true, 0, 1.5},
        AttentionFormula{kCacheScale, true, 40, 0.7},
        AttentionFormula{kCacheScale, true, 0, 0.0, 2 * random_tensor({9}, 97)},
        AttentionFormula{kCacheScale, true, 33, 0.7, 2 * random_tensor({9}, 96)}}) {
    for (const auto& [type, tolerance] :
         {std::pair{at::kDouble, 1e-13}, {at::kFloat, 4e-6}, {at::kBFloat16, 5e-3}}) {
      SCOPED_TRACE(::testing::Message() << "window " << formula.window << ", " << at::toString(type));
      World world = make_world({{1100, 1}, {40, 7}, {513, 3}, {5, 1}, {1150, 40}}, 3, 33, type);
      for (CachedSequence& sequence : world.batch.sequences) {
        const int64_t first_query = sequence.length - sequence.added;
        for (size_t page = 0; formula.window > 0 && page < sequence.pages.size(); ++page) {
          const int64_t end = (static_cast<int64_t>(page) + 1) * kCachePageTokens;
          if (end <= first_query - formula.window + 1) sequence.pages[page].reset();
        }
      }
      const at::Tensor q = random_tensor({world.new_tokens, 9, 33}, 98, type);
      expect_near(cached_attention(q, world.batch, 1, formula), plain_cached(world, q, formula), tolerance,
                  "attention");
    }
  }
}

TEST(CachedAttention, ATokenDependsOnItsOwnSequenceAloneToTheLastBit) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    World world = make_world({{1100, 1}, {40, 1}, {20, 5}, {600, 50}, {30, 30}}, 2, 16, type);
    const at::Tensor q = random_tensor({87, 4, 16}, 5, type);
    const at::Tensor together = cached_attention(q, world.batch, 1, {kCacheScale});
    const int threads = at::get_num_threads();
    for (const int count : {1, 3}) {
      at::set_num_threads(count);
      for (CachedSequence sequence : world.batch.sequences) {
        const int64_t first = sequence.first;
        sequence.first = 0;
        CachedBatch alone = world.batch;
        alone.sequences = {sequence};
        EXPECT_TRUE(at::equal(cached_attention(q.narrow(0, first, sequence.added), alone, 1, {kCacheScale}),
                              together.narrow(0, first, sequence.added)));
      }
    }
    at::set_num_threads(threads);
  }
}

// Returns x with each row of its last dimension as signed bytes and a scale would keep it.
at::Tensor through_codes(const at::Tensor& x) {
  const at::Tensor scale = x.to(at::kFloat).abs().amax({-1}, /*keepdim=*/true) / 127.0;
  const at::Tensor codes = x.to(at::kFloat).to(at::kDouble) * scale.reciprocal().to(at::kDouble);
  return codes.round() * scale.to(at::kDouble);
}

// A number half-way between two codes may get either, which the tolerances allow for.
TEST(CachedAttention, PagesInEightBitsKeepCodesWithAScaleForEachHead) {
  for (const auto& [type, tolerance] :
       {std::pair{at::kDouble, 2e-4}, {at::kFloat, 2e-4}, {at::kBFloat16, 8e-3}}) {
    for (const AttentionFormula& formula :
         {AttentionFormula{kCacheScale}, AttentionFormula{kCacheScale, true, 40}}) {
      SCOPED_TRACE(::testing::Message() << "window " << formula.window << ", " << at::toString(type));
      World world = make_world({{1100, 1}, {40, 7}, {31, 31}, {513, 70}}, 3, 40, type);
      world.batch.dtype = kCodedCache;
      std::vector<at::Tensor> keys, values;
      for (size_t i = 0; i < world.lengths.size(); ++i) {
        CachedSequence& sequence = world.batch.sequences[i];
        // The elements of a page that belong to no token must not matter.
        for (at::Tensor& page : sequence.pages)
          page = at::full({coded_page_bytes(kLayers, 3, 40)}, 0x7f, at::TensorOptions().dtype(kCodedCache));
        const auto [length, added] = world.lengths[i];
        if (const int64_t past = length - added; past > 0) {
          CachedBatch earlier{3, 40, kCodedCache, {{0, past, past, sequence.pages}}};
          write_cache(earlier, 1, world.keys[i].narrow(0, 0, past), world.values[i].narrow(0, 0, past));
        }
        keys.push_back(world.keys[i].narrow(0, length - added, added));
        values.push_back(world.values[i].narrow(0, length - added, added));
        world.keys[i] = through_codes(world.keys[i]);
        world.values[i] = through_codes(world.values[i]);
      }
      write_cache(world.batch, 1, at::cat(keys), at::cat(values));
      const at::Tensor q = random_tensor({world.new_tokens, 9, 40}, 95, type);
      expect_near(cached_attention(q, world.batch, 1, formula), plain_cached(world, q, formula), tolerance,
                  "attention");
    }
  }
}

TEST(CachedAttention, ANumberThatIsNotFiniteShowsThroughEightBits) {
  for (const double bad : {double(NAN), double(INFINITY)}) {
    CachedBatch batch{1, 8, kCodedCache, {{0, 1, 1, {at::zeros({coded_page_bytes(1, 1, 8)}, kCodedCache)}}}};
    at::Tensor x = at::ones({1, 1, 8});
    x[0][0][3] = bad;
    write_cache(batch, 0, at::ones({1, 1, 8}), x);
    const at::Tensor out = cached_attention(at::ones({1, 1, 8}), batch, 0, {1.0});
    EXPECT_FALSE(at::isfinite(out).any().item<bool>());
  }
}

TEST(CachedAttention, LayersDoNotTouchEachOther) {
  World world = make_world({{40, 2}}, 2, 8, at::kDouble);
  const at::Tensor q = random_tensor({2, 2, 8}, 6);
  const at::Tensor before = cached_attention(q, world.batch, 1, {kCacheScale});
  write_cache(world.batch, 0, at::zeros({2, 2, 8}, at::kDouble), at::zeros({2, 2, 8}, at::kDouble));
  EXPECT_TRUE(at::equal(cached_attention(q, world.batch, 1, {kCacheScale}), before));
}

TEST(CachedAttention, HugeScoresDoNotOverflowAndNanShows) {
  World world = make_world({{70, 1}}, 1, 4, at::kFloat);
  const at::Tensor q = at::full({1, 1, 4}, 1e4f);
  EXPECT_TRUE(at::isfinite(cached_attention(q, world.batch, 1, {1.0})).all().item<bool>());
  EXPECT_TRUE(
      at::isnan(cached_attention(at::full({1, 1, 4}, NAN), world.batch, 1, {1.0})).all().item<bool>());
}

TEST(CachedAttention, RefusesBatchesThatDoNotFit) {
  World world = make_world({{40, 2}}, 2, 8, at::kDouble);
  EXPECT_THROW(cached_attention(random_tensor({3, 2, 8}, 1), world.batch, 1, {kCacheScale}), Error);
  EXPECT_THROW(cached_attention(random_tensor({2, 3, 8}, 1), world.batch, 1, {kCacheScale}), Error);
  EXPECT_THROW(cached_attention(random_tensor({2, 2, 8}, 1, at::kFloat), world.batch, 1, {kCacheScale}),
               Error);
  world.batch.sequences[0].pages.pop_back();
  EXPECT_THROW(cached_attention(random_tensor({2, 2, 8}, 1), world.batch, 1, {kCacheScale}), Error);
}

}  // namespace
}  // namespace tessera::ops
