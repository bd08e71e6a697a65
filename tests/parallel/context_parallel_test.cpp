// Tests that attention with its tokens spread over ranks equals attention over whole documents.
#include "tessera/parallel/context_parallel/context_parallel.h"

#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/comm/fake/fake_backend.h"
#include "tessera/core/error.h"
#include "tessera/nn/attention.h"
#include "tessera/nn/kv_cache.h"
#include "tessera/nn/materialize.h"
#include "tessera/ops/attention.h"
#include "tessera/parallel/context_parallel/ring_attention.h"
#include "tessera/parallel/context_parallel/token_split.h"
#include "tessera/parallel/context_parallel/ulysses.h"
#include "tessera/parallel/context_parallel/usp.h"

#include "tests/testing/gradcheck.h"
#include "tests/testing/random.h"

namespace tessera::parallel {
namespace {

using namespace checks;

using tessera::testing::Random;

TEST(TokenSplit, EveryTokenIsHeldOnceAndTheWorkIsEven) {
  for (const int64_t ranks : {1, 2, 3, 4}) {
    const TokenSplit split({0, 240, 240, 241, 300, 1500}, ranks);
    std::vector<int64_t> holders(1500, 0);
    int64_t least = INT64_MAX, most = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      int64_t count = 0, pairs = 0;
      for (const nn::TokenRun& run : split.runs(rank)) {
        count += run.count;
        for (int64_t token = run.first; token < run.first + run.count; ++token) ++holders[token];
      }
      EXPECT_EQ(count, split.count(rank));
      for (int64_t source = 0; source < ranks; ++source) {
        for (int64_t half = 0; half < 4; ++half) {
          for (const auto& span : split.spans(rank, half / 2, source, half % 2)) {
            const auto band = key_band(span, {});
            for (int64_t i = 0; i < span.queries; ++i) pairs += band.from(i, 0).keys_seen(1).size();
          }
        }
      }
      least = std::min(least, pairs);
      most = std::max(most, pairs);
    }
    EXPECT_EQ(holders, std::vector<int64_t>(1500, 1));
    EXPECT_LT(static_cast<double>(most - least), 0.02 * static_cast<double>(most)) << ranks << " ranks";
  }
}

struct Case {
  std::vector<int64_t> starts;
  int64_t heads, kv_heads, head_dim;
  ops::AttentionFormula formula;
  bool has_sinks = false;
};

// Returns the rows of `whole` that rank `rank` has.
at::Tensor taken(const at::Tensor& whole, const TokenSplit& split, int64_t rank) {
  std::vector<at::Tensor> runs = {whole.narrow(0, 0, 0)};
  for (const nn::TokenRun& run : split.runs(rank)) runs.push_back(whole.narrow(0, run.first, run.count));
  return at::cat(runs).detach();
}

using Attend = std::function<at::Tensor(const Inputs&, const TokenSplit&, const Case&,
                                        const std::shared_ptr<comm::Communicator>&)>;

at::Tensor by_ring(const Inputs& in, const TokenSplit& split, const Case& c,
                   const std::shared_ptr<comm::Communicator>& group) {
  return ring_attention(in[0], in[1], in[2], split, c.formula, group);
}
at::Tensor by_ulysses(const Inputs& in, const TokenSplit& split, const Case& c,
                      const std::shared_ptr<comm::Communicator>& group) {
  nn::SequenceContext context;
  context.document_starts = c.starts;
  return ulysses_attention(
      in[0], in[1], in[2], whole_line(split), c.formula,
      [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
          const ops::AttentionFormula& of_heads) {
        return nn::document_attention()->attend(q, k, v, context, 0, of_heads);
      },
      group);
}
// Returns attention by USP: heads are exchanged among `neighbours` ranks, and rings go over these groups.
Attend by_usp(int64_t neighbours) {
  return [neighbours](const Inputs& in, const TokenSplit& split, const Case& c,
                      const std::shared_ptr<comm::Communicator>& group) {
    const int64_t number = group->rank() / neighbours, place = group->rank() % neighbours;
    return usp_attention(in[0], in[1], in[2], split, c.formula, group->split(number, place, "heads"),
                         group->split(place, number, "ring"));
  };
}

void expect_same_as_whole(const Case& c, int64_t ranks, const Attend& attend, at::ScalarType type,
                          double tolerance) {
  const int64_t tokens = c.starts.back();
  const Inputs in = {trained(random_tensor({tokens, c.heads, c.head_dim}, 1, type)),
                     trained(random_tensor({tokens, c.kv_heads, c.head_dim}, 2, type)),
                     trained(random_tensor({tokens, c.kv_heads, c.head_dim}, 3, type)),
                     trained(random_tensor({c.heads}, 5, type))};
  const auto formula_of = [&](const at::Tensor& sinks) {
    ops::AttentionFormula formula = c.formula;
    if (c.has_sinks) formula.sinks = sinks;
    return formula;
  };
  const at::Tensor want = ops::document_attention(in[0], in[1], in[2], c.starts, formula_of(in[3]));
  const at::Tensor direction = random_tensor(want.sizes(), 4, type);
  const auto gradients_of = [&](const at::Tensor& result, const Inputs& inputs, const at::Tensor& along) {
    return torch::autograd::grad({result}, inputs, {along}, std::nullopt, false,
                                 /*allow_unused=*/!c.has_sinks);
  };
  const auto gradients = gradients_of(want, in, direction);
  at::Tensor sum_of_sinks = at::zeros({c.heads}, at::kDouble);
  const TokenSplit split(c.starts, ranks);
  std::mutex mutex;
  comm::run_fake_ranks(ranks, [&](const auto& world) {
    const auto own = [&](const at::Tensor& whole) { return taken(whole, split, world->rank()); };
    Inputs part;
    for (size_t i = 0; i < 3; ++i) part.push_back(trained(own(in[i])));
    part.push_back(trained(in[3].detach().clone()));
    Case own_case = c;
    own_case.formula = formula_of(part[3]);
    if (c.formula.dropout.probability > 0) own_case.formula.dropout.draws = own(c.formula.dropout.draws);
    const at::Tensor got = attend(part, split, own_case, world);
    const auto own_gradients = gradients_of(got, part, own(direction));
    const std::lock_guard lock(mutex);
    expect_near(got, own(want), tolerance, "attention");
    for (size_t i = 0; i < 3; ++i) {
      expect_near(own_gradients[i], own(gradients[i]), tolerance, "gradient " + std::to_string(i));
    }
    if (c.has_sinks) sum_of_sinks += own_gradients[3];
  });
  if (c.has_sinks)
    expect_near(sum_of_sinks, gradients[3].to(at::kDouble), 10 * tolerance, "gradient of sinks");
}

TEST(ContextParallel, RandomDocumentsEqualWholeOnes) {
  Random random;
  for (int round = 0; round < 6; ++round) {
    Case c{{0}, 0, random.in(1, 4), random.in(1, 20), {0.4}};
    c.heads = c.kv_heads * random.in(1, 3);
    for (int64_t i = random.in(1, 4); i > 0; --i) {
      c.starts.push_back(c.starts.back() + (random.in(0, 2) == 0 ? random.in(0, 5) : random.in(6, 150)));
    }
    for (const ops::AttentionFormula& formula :
         {ops::AttentionFormula{0.4}, ops::AttentionFormula{0.4, true, random.in(1, 60)},
          ops::AttentionFormula{0.4, false}, ops::AttentionFormula{0.4, true, 0, 1.5},
          ops::AttentionFormula{.scale = 0.4, .dropout = {0.3}}}) {
      c.formula = formula;
      if (formula.dropout.probability > 0) {
        c.formula.dropout.draws =
            at::randint(std::numeric_limits<int64_t>::max(), {c.starts.back(), c.heads}, at::kLong);
      }
      for (const int64_t ranks : {1, 2, 3, 4}) {
        SCOPED_TRACE(::testing::Message()
                     << at::IntArrayRef(c.starts) << " on " << ranks << " ranks, " << c.kv_heads << " of "
                     << c.heads << " heads, window " << formula.window << ", causal " << formula.is_causal
                     << ", dropout " << formula.dropout.probability);
        for (const Attend& attend : {Attend(by_ring), Attend(by_ulysses)}) {
          expect_same_as_whole(c, ranks, attend, at::kDouble, 1e-12);
        }
        expect_same_as_whole(c, ranks, by_ring, at::kFloat, 2e-5);
        if (ranks == 4) expect_same_as_whole(c, ranks, by_usp(2), at::kDouble, 1e-12);
        Case with_sinks = c;
        with_sinks.has_sinks = true;
        const Attend one_of[] = {by_ring, by_ulysses, by_usp(ranks % 2 == 0 ? 2 : 1)};
        expect_same_as_whole(with_sinks, ranks, one_of[static_cast<size_t>(random.in(0, 2))], at::kDouble,
                             1e-12);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(ContextParallel, GridsOf6RanksEqualWholeDocuments) {
  for (const int64_t neighbours : {2, 3}) {
    for (const ops::AttentionFormula& formula :
         {ops::AttentionFormula{0.3}, ops::AttentionFormula{0.3, true, 17}}) {
      expect_same_as_whole({{0, 3, 90, 101, 250}, 6, 3, 8, formula}, 6, by_usp(neighbours), at::kDouble,
                           1e-12);
    }
  }
}

TEST(ContextParallel, LongDocumentsInNarrowTypes) {
  const Case c{{0, 1700, 1730}, 4, 2, 32, {.scale = 0.2}};
  expect_same_as_whole(c, 2, by_ring, at::kFloat, 2e-5);
  expect_same_as_whole(c, 3, by_ring, at::kBFloat16, 3e-2);
  expect_same_as_whole(c, 2, by_ulysses, at::kBFloat16, 1e-6);
}

TEST(ContextParallel, ReplacesTheCoreOfAModule) {
  const std::vector<int64_t> starts = {0, 9, 23};
  const at::Tensor x = random_tensor({23, 10}, 1);
  struct Net : torch::nn::Module {
    std::shared_ptr<nn::Attention> attention = register_module(
        "attention",
        std::make_shared<nn::Attention>(
            nn::AttentionOptions{.hidden_size = 10, .num_heads = 4, .num_kv_heads = 2, .head_dim = 6}, 0,
            at::kDouble));
    Net() {
      uint64_t seed = 1;
      for (auto& item : named_parameters())
        nn::materialize(item.value(), random_tensor(item.value().sizes(), ++seed));
    }
  };
  Net whole;
  nn::SequenceContext context;
  context.document_starts = starts;
  const at::Tensor want = whole.attention->forward(x, context);
  context.document_starts = {0, 23};
  const at::Tensor over_a_cache = whole.attention->forward(x, context);
  for (const auto method : {ContextParallelMethod::Ring, ContextParallelMethod::Ulysses,
                            ContextParallelMethod::Auto, ContextParallelMethod::Usp}) {
    // There are two key/value heads, so USP has pairs of neighbours, and four ranks make a ring of two pairs.
    comm::run_fake_ranks(method == ContextParallelMethod::Usp ? 4 : 3, [&](const auto& world) {
      Net net;
      context_parallel(net, method, world);
      const nn::TokenBatch batch{at::arange(23), at::arange(23) + 100, at::arange(23), starts};
      const nn::TokenBatch part = token_part(batch, *world);
      EXPECT_TRUE(at::equal(part.labels, part.input_ids + 100)) << "labels go with their tokens";
      nn::SequenceContext own;
      own.document_starts = starts;
      own.part = part.part;
      const at::Tensor got = net.attention->forward(x.index_select(0, part.input_ids), own);
      expect_near(got, want.index_select(0, part.input_ids), 1e-12, "attention");
      own.part.reset();
      EXPECT_THROW(net.attention->forward(x, own), Error) << "whole lines";

      nn::KvCache cache({.num_layers = 1, .num_kv_heads = 2, .head_dim = 6, .dtype = at::kDouble});
      const nn::CacheStep step(cache, {cache.add()}, {0, 23});
      own.cache = &step;
      expect_near(net.attention->forward(x, own), over_a_cache, 1e-12, "each rank continues whole texts");
    });
  }
}

}  // namespace
}  // namespace tessera::parallel
