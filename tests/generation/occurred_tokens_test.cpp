#include "tessera/generation/occurred_tokens.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"

namespace tessera::generation {
namespace {

at::Tensor numbers(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

// Returns the ids that have occurred in a sequence.
std::vector<int64_t> ids_of(OccurredTokens& occurred, int64_t sequence) {
  const at::Tensor has = occurred.of(numbers({occurred.row_of(sequence)}))[0];
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < has.size(0); ++id) {
    if (has[id].item<bool>()) ids.push_back(id);
  }
  return ids;
}

using Ids = std::vector<int64_t>;

TEST(OccurredTokens, OfASequenceStayItsOwn) {
  nn::KvCache cache({.num_layers = 1, .num_kv_heads = 1, .head_dim = 2});
  OccurredTokens occurred(cache, 10);
  // There are more sequences than rows at first.
  std::vector<int64_t> sequences;
  for (int64_t i = 0; i < 30; ++i) {
    sequences.push_back(cache.add());
    const int64_t row = occurred.row_of(sequences.back());
    EXPECT_NE(row, OccurredTokens::kNobodys);
    occurred.add(numbers({row, row, OccurredTokens::kNobodys}), numbers({i % 10, 3, 7}));
  }
  for (int64_t i = 0; i < 30; ++i) {
    Ids want = {3};
    if (i % 10 != 3) want.insert(i % 10 < 3 ? want.begin() : want.end(), i % 10);
    EXPECT_EQ(ids_of(occurred, sequences[static_cast<size_t>(i)]), want) << i;
  }
}

TEST(OccurredTokens, RowsOfSequencesThatAreGoneServeOthers) {
  nn::KvCache cache({.num_layers = 1, .num_kv_heads = 1, .head_dim = 2});
  OccurredTokens occurred(cache, 10);
  const int64_t kept = cache.add();
  occurred.add(numbers({occurred.row_of(kept)}), numbers({1}));
  int64_t most = 0;
  for (int64_t i = 0; i < 50; ++i) {
    const int64_t passing = cache.add(), row = occurred.row_of(passing);
    most = std::max(most, row);
    EXPECT_EQ(ids_of(occurred, passing), Ids()) << "what its owner before has left";
    occurred.add(numbers({row}), numbers({5}));
    EXPECT_EQ(ids_of(occurred, passing), Ids({5}));
    cache.free(passing);
  }
  EXPECT_LT(most, 8);
  EXPECT_EQ(ids_of(occurred, kept), Ids({1}));
  EXPECT_THROW(occurred.row_of(1000), Error);
}

}  // namespace
}  // namespace tessera::generation
