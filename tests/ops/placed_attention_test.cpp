#include "tessera/ops/placed_attention.h"

#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/core/rng.h"

#include "tests/testing/gradcheck.h"

namespace tessera::ops {
namespace {

using namespace checks;

constexpr int64_t kPlacedLayers = 2, kLayer = 1, kHeads = 6, kKvHeads = 2, kHeadDim = 5, kPages = 40,
                  kNobodys = kPages;

// Sequences in both forms, as a CachedBatch and as PlacedTokens; their pages lie at scattered places among
// all pages.
struct PlacedWorld {
  CachedBatch batch;
  PlacedTokens placed;
};

PlacedWorld make_placed_world(const std::vector<int64_t>& pasts, const AttentionFormula& formula,
                              int64_t columns, at::ScalarType type) {
  PlacedWorld world;
  world.batch = {kKvHeads, kHeadDim, type, {}};
  const auto options = at::TensorOptions().dtype(type);
  // The elements of a page that belong to no token must not matter, so they are NaN.
  const at::Tensor pages =
      at::full({kPages + 1, cache_page_elements(kPlacedLayers, kKvHeads, kHeadDim)}, NAN, options);
  const auto rows = static_cast<int64_t>(pasts.size());
  const at::Tensor positions = at::tensor(pasts, at::kLong), firsts = at::zeros({rows}, at::kLong),
                   table = at::full({rows, columns}, kNobodys, at::kLong);
  int64_t next = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t past = pasts[static_cast<size_t>(row)];
    CachedSequence sequence{0, past, past, {}};
    std::vector<int64_t> own;
    for (int64_t first = 0; first <= past; first += kCachePageTokens) {
      own.push_back(next++ * 7 % kPages);  // 7 and 40 have no common divisor
      sequence.pages.push_back(pages[own.back()]);
    }
    if (past > 0) {
      const auto seed = static_cast<uint64_t>(row);
      CachedBatch earlier = world.batch;
      earlier.sequences = {sequence};
      write_cache(earlier, kLayer, random_tensor({past, kKvHeads, kHeadDim}, 3 * seed, type),
                  random_tensor({past, kKvHeads, kHeadDim}, 3 * seed + 1, type));
    }
    const int64_t unseen =
        formula.window == 0 ? 0 : std::max<int64_t>(0, past + 1 - formula.window) / kCachePageTokens;
    firsts[row] = unseen * kCachePageTokens;
    for (int64_t page = unseen; page < std::ssize(own); ++page)
      table[row][page - unseen] = own[static_cast<size_t>(page)];
    world.batch.sequences.push_back({row, 1, past + 1, sequence.pages});
  }
  EXPECT_LE(next, kPages);
  world.placed = {kKvHeads, kHeadDim, pages, positions, firsts, table};
  return world;
}

TEST(PlacedAttention, IsThatOfPages) {
  const std::vector<int64_t> pasts = {0, 5, 31, 32, 33, 64, 200};
  const auto rows = static_cast<int64_t>(pasts.size());
  for (const AttentionFormula& formula :
       {AttentionFormula{0.3}, AttentionFormula{0.3, true, 1}, AttentionFormula{0.3, true, 33},
        AttentionFormula{0.3, true, 100, 0.7}, AttentionFormula{0.3, true, 0, 1.5},
        AttentionFormula{0.3, true, 33, 0.0, random_tensor({kHeads}, 90)}}) {
    for (const auto& [type, tolerance] :
         {std::pair{at::kDouble, 1e-13}, {at::kFloat, 4e-6}, {at::kBFloat16, 1e-2}}) {
      for (const int64_t columns : {7, 16}) {
        SCOPED_TRACE(::testing::Message() << "window " << formula.window << ", cap " << formula.soft_cap
                                          << ", " << at::toString(type) << ", " << columns << " pages");
        const PlacedWorld one = make_placed_world(pasts, formula, columns, type),
                          other = make_placed_world(pasts, formula, columns, type);
        const at::Tensor q = random_tensor({rows, kHeads, kHeadDim}, 91, type),
                         k = random_tensor({rows, kKvHeads, kHeadDim}, 92, type),
                         v = random_tensor({rows, kKvHeads, kHeadDim}, 93, type);
        write_cache(one.batch, kLayer, k, v);
        const at::Tensor want = cached_attention(q, one.batch, kLayer, formula);
        const at::Tensor got = placed_attention(q, k, v, other.placed, kLayer, formula);
        ASSERT_EQ(got.scalar_type(), type);
        expect_near(got, want, tolerance, "attention");
        // The pages of both forms hold equal values, so nothing else in them was written.
        EXPECT_TRUE(at::equal(at::nan_to_num(other.placed.pages), at::nan_to_num(one.placed.pages)));
      }
    }
  }
}

// Rows without a sequence all write to the page that belongs to nobody, and disturb no other row.
TEST(PlacedAttention, RowsWithoutASequenceDisturbNobody) {
  const AttentionFormula formula{0.3};
  const PlacedWorld alone = make_placed_world({40}, formula, 4, at::kDouble),
                    filled = make_placed_world({40}, formula, 4, at::kDouble);
  const at::Tensor q = random_tensor({1, kHeads, kHeadDim}, 91),
                   k = random_tensor({1, kKvHeads, kHeadDim}, 92),
                   v = random_tensor({1, kKvHeads, kHeadDim}, 93);
  const at::Tensor want = placed_attention(q, k, v, alone.placed, kLayer, formula);
  PlacedTokens more = filled.placed;
  const auto with_rows = [](const at::Tensor& x, int64_t value) {
    auto sizes = x.sizes().vec();
    sizes[0] = 2;
    return at::cat({x, at::full(sizes, value, x.options())});
  };
  more.positions = with_rows(more.positions, 0);
  more.firsts = with_rows(more.firsts, 0);
  more.table = with_rows(more.table, kNobodys);
  const auto three = [](const at::Tensor& x) { return x.repeat({3, 1, 1}); };
  const at::Tensor got = placed_attention(three(q), three(k), three(v), more, kLayer, formula);
  expect_near(got[0], want[0], 1e-14, "attention");
  EXPECT_TRUE(at::isfinite(got).all().item<bool>());
  EXPECT_TRUE(at::equal(at::nan_to_num(more.pages.narrow(0, 0, kPages)),
                        at::nan_to_num(alone.placed.pages.narrow(0, 0, kPages))));
}

TEST(PlacedAttention, NanInWhatIsSeenShows) {
  const PlacedWorld world = make_placed_world({40}, {0.3}, 4, at::kDouble);
  const at::Tensor nan = at::full({1, kKvHeads, kHeadDim}, NAN, at::kDouble);
  EXPECT_TRUE(at::isnan(placed_attention(random_tensor({1, kHeads, kHeadDim}, 1), nan, nan, world.placed,
                                         kLayer, {0.3}))
                  .all()
                  .item<bool>());
}

TEST(PlacedAttention, RefusesWhatDoesNotFit) {
  const PlacedWorld world = make_placed_world({40}, {0.3}, 4, at::kDouble);
  const at::Tensor q = random_tensor({1, kHeads, kHeadDim}, 1), k = random_tensor({1, kKvHeads, kHeadDim}, 2);
  EXPECT_THROW(placed_attention(q, k, k, world.placed, kLayer, {0.3, false}), Error);
  EXPECT_THROW(placed_attention(q.repeat({2, 1, 1}), k, k, world.placed, kLayer, {0.3}), Error);
  EXPECT_THROW(placed_attention(q.to(at::kFloat), k, k, world.placed, kLayer, {0.3}), Error);
}

}  // namespace
}  // namespace tessera::ops
