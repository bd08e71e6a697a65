// Random batches of logits, with the sampling options of their next tokens, and the tokens that the host
// chooses.
#pragma once

#include <cmath>
#include <optional>
#include <set>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tessera/core/error.h"
#include "tessera/device/host_memory.h"
#include "tessera/generation/draw_tokens.h"

#include "tests/testing/random.h"

namespace tessera::generation {

// Returns logits [vocabulary] with numbers added, each sum rounded to the type of the logits.
inline at::Tensor with_added(const at::Tensor& logits, std::span<const TokenBias> biases) {
  const at::Tensor sums = logits.clone();
  const at::ScalarType exact = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  for (const TokenBias& bias : biases)
    sums[bias.id].copy_(sums[bias.id].to(exact) + at::scalar_tensor(bias.delta, exact));
  return sums;
}

// Returns logits [vocabulary] as a draw changes them, with its repetition penalty applied to the tokens
// `occurred` by Transformers' formula.
inline at::Tensor changed(const at::Tensor& logits_in, const TokenDraw& draw,
                          const std::vector<int64_t>& occurred) {
  const SamplingOptions& options = draw.options;
  const at::Tensor logits = with_added(logits_in, draw.before_penalty);
  if (options.repetition_penalty == 1.0 || occurred.empty()) return with_added(logits, draw.after_penalty);
  const std::set<int64_t> once(occurred.begin(), occurred.end());
  const at::Tensor ids = at::tensor(std::vector<int64_t>(once.begin(), once.end()), at::kLong);
  const at::Tensor scores = logits.index_select(0, ids);
  const at::Tensor penalized =
      at::where(scores < 0, scores * options.repetition_penalty, scores / options.repetition_penalty);
  return with_added(logits.index_copy(0, ids, penalized), draw.after_penalty);
}

struct DrawCase {
  at::Tensor logits;                                // [rows, vocabulary]
  std::vector<TokenDraw> draws;                     // one for each row
  std::vector<std::vector<int64_t>> occurred;       // for each row, the tokens that have occurred
  std::vector<std::vector<TokenBias>> biases = {};  // that `draws` point to

  DrawWork work() const {
    DrawWork work;
    for (const TokenDraw& draw : draws) work.add(draw);
    return work;
  }
  at::Tensor values() const {
    at::Tensor values = at::empty({kDrawValues, std::ssize(draws)}, at::kDouble);
    for (size_t i = 0; i < draws.size(); ++i) {
      int64_t which = 0;
      for (const double value : draw_values(draws[i])) values[which++][static_cast<int64_t>(i)] = value;
    }
    return values;
  }
  at::Tensor has_occurred() const {
    at::Tensor has = at::zeros(logits.sizes(), at::kBool);
    for (size_t i = 0; i < occurred.size(); ++i) {
      for (const int64_t id : occurred[i]) has[static_cast<int64_t>(i)][id] = true;
    }
    return has;
  }
  DrawCase row(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    return {logits.narrow(0, i, 1), {draws[at]}, {occurred[at]}};
  }
  // Returns the token that the host chooses for row i; nothing if it refuses the row's logits.
  std::optional<int64_t> want(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    const SamplingOptions& options = draws[at].options;
    try {
      return sample(changed(logits[i], draws[at], occurred[at]), options, draws[at].index);
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  // Returns the logits as the draws change them on `device`.
  at::Tensor changed_logits(at::Device device) const {
    const DrawWork kinds = work();
    return change_logits(logits.to(device), draws, values().to(device),
                         kinds.penalizes ? has_occurred().to(device) : at::Tensor(), kinds);
  }
  // Returns what `device` chooses, [2, rows] on the host.
  at::Tensor chosen(at::Device device) const {
    return draw_tokens(changed_logits(device), values().to(device), work());
  }
};

// Returns a case with options of all kinds, alone and together. Logits are equal or different, some are
// -inf, and now and then sample() refuses a row.
inline DrawCase random_case(testing::Random& random, at::ScalarType type) {
  const auto one_in = [&](int64_t n) { return random.in(1, n) == 1; };
  const auto part = [&] { return static_cast<double>(random.in(0, 1000)) / 1000.0; };
  const int64_t rows = random.in(1, 7), vocabulary = one_in(4) ? random.in(1, 4) : random.in(5, 3000);
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(random.in(0, 1 << 30)));
  at::Tensor logits = at::randn({rows, vocabulary}, generator, at::kDouble) * (1.0 + 9.0 * part());
  DrawCase result;
  for (int64_t i = 0; i < rows; ++i) {
    at::Tensor row = logits[i];
    if (one_in(2)) row.copy_((row * 2.0).round() / 2.0);
    if (one_in(4)) row.fill_(row[0]);
    if (one_in(3)) row.masked_fill_(at::rand({vocabulary}, generator, at::kDouble) < part(), -INFINITY);
    const double broken[] = {NAN, INFINITY, -NAN};
    if (one_in(8)) row[random.in(0, vocabulary - 1)] = broken[random.in(0, 2)];
    SamplingOptions options{.seed = static_cast<uint64_t>(random.in(0, 1 << 30)),
                            .sequence = static_cast<uint64_t>(i)};
    if (!one_in(4)) options.temperature = one_in(6) ? 1e-5 : 0.05 + 3.0 * part();
    if (one_in(2)) options.top_k = one_in(3) ? random.in(1, 5000) : random.in(1, 20);
    if (one_in(2)) options.top_p = one_in(5) ? 1e-9 : std::max(1e-3, part());
    if (one_in(3)) options.min_p = one_in(6) ? 1.0 : part() * part();
    if (one_in(2)) options.repetition_penalty = one_in(2) ? 1.3 : 0.1 + 2.0 * part();
    options.check();
    result.draws.push_back({options, static_cast<uint64_t>(random.in(0, 100))});
    for (const auto list : {&TokenDraw::before_penalty, &TokenDraw::after_penalty}) {
      std::vector<TokenBias> biases;
      for (int64_t id = 0; one_in(2) && id < vocabulary; id += random.in(1, 40))
        biases.push_back({id, one_in(9) ? -INFINITY : 8.0 * (part() - 0.5)});
      result.biases.push_back(std::move(biases));
      result.draws.back().*list = result.biases.back();
    }
    std::vector<int64_t> occurred;
    for (int64_t n = random.in(0, 40); n > 0; --n) occurred.push_back(random.in(0, vocabulary - 1));
    result.occurred.push_back(std::move(occurred));
  }
  result.logits = logits.to(type);
  return result;
}

// Expects that `chosen`, [2, rows] on the host, holds the tokens that the host chooses.
inline void expect_wanted(const at::Tensor& chosen, const DrawCase& asked) {
  const TokenChoice choice(at::Tensor(), chosen);
  for (int64_t i = 0; i < asked.logits.size(0); ++i) {
    const SamplingOptions& o = asked.draws[static_cast<size_t>(i)].options;
    SCOPED_TRACE(::testing::Message()
                 << asked.logits.scalar_type() << ", row " << i << " of " << asked.logits.size(0)
                 << ", vocabulary " << asked.logits.size(1) << ", temperature " << o.temperature << ", top_k "
                 << o.top_k << ", top_p " << o.top_p << ", min_p " << o.min_p << ", penalty "
                 << o.repetition_penalty << ", added "
                 << asked.draws[static_cast<size_t>(i)].before_penalty.size() << " and "
                 << asked.draws[static_cast<size_t>(i)].after_penalty.size());
    if (const auto want = asked.want(i)) {
      EXPECT_EQ(choice.choose(i, o, 0), *want);
    } else {
      EXPECT_THROW(choice.choose(i, o, 0), Error);
      EXPECT_TRUE(chosen[0][i].item<double>() >= 0 &&
                  chosen[0][i].item<double>() < double(asked.logits.size(1)));
    }
  }
}

}  // namespace tessera::generation
