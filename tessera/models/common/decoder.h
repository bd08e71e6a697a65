// One token of each of some sequences at a time, by work that a device has recorded.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/core/device_graph.h"
#include "tessera/models/common/causal_lm.h"
#include "tessera/models/common/draw_tokens.h"
#include "tessera/models/common/occurred_tokens.h"

namespace tessera::models {

// Logits of next tokens, [at least as many rows as sequences, vocabulary], where the model computes. On a
// device with streams also the tokens, as draw_tokens() chooses them; undefined elsewhere. Good until the
// next call of who gave them.
struct NextLogits {
  at::Tensor logits, chosen;
};

// On a device with streams a decoding step works with tensors that stay at their place: the host copies ids,
// positions and the numbers of pages into them, once a step and without a wait. Sequences are filled up to a
// power of two of rows, and pages to one of columns; each such shape runs once as it is, is then recorded
// (core/device_graph.h), and replayed from there on, until the cache gets more pages and with them another
// place. Where the device cannot record, or is not asked to, the same operations run one by one, to the same
// bits. Elsewhere, and for models of which decode() is not the device's alone, all is
// CausalLM::next_logits(). Tokens are chosen behind that, by operations that are not recorded unless all are
// the likeliest, from numbers that come along with the ids.
//
// The model and the cache must outlive it, and the model keeps its parameters where they are.
class Decoder {
 public:
  Decoder(CausalLM& model, nn::KvCache& cache, bool records = true);

  // As CausalLM::next_logits(); tokens of any number. draws: of each sequence, or empty: all take the
  // likeliest. A penalty of repetition counts the tokens that a sequence was fed since it first had one.
  NextLogits prefill(const std::vector<NewTokens>& batch, const std::vector<TokenDraw>& draws = {});
  // As prefill(); one token of each sequence.
  NextLogits decode(const std::vector<NewTokens>& batch, const std::vector<TokenDraw>& draws = {});

 private:
  // The steps of one shape.
  struct Step {
    at::Tensor inputs;  // int64, a column for each row of the step (InputRow)
    NextLogits made;    // of the recording, with the likeliest tokens
    std::unique_ptr<DeviceGraph> graph;
    bool has_run = false;
  };

  NextLogits run(const Step& step);
  NextLogits run_or_replay(Step& step);
  // What draw() is told of each sequence: its row of occurred_, and its draw_values() as they lie in memory.
  static constexpr int64_t kDrawRows = 1 + kDrawValues;
  // Into the first columns of [kDrawRows, columns].
  void write_draws(std::span<int64_t> to, int64_t columns, const std::vector<NewTokens>& batch,
                   const std::vector<TokenDraw>& draws);
  // From logits and [kDrawRows, sequences] on the device.
  at::Tensor draw(const at::Tensor& logits, const at::Tensor& told, const DrawWork& work) const;

  CausalLM& model_;
  nn::KvCache& cache_;
  const bool has_streams_, is_placed_, records_;
  OccurredTokens occurred_;
  int64_t num_moves_ = 0;                              // of the cache, when steps were recorded
  std::map<std::pair<int64_t, int64_t>, Step> steps_;  // by rows and columns
};

}  // namespace tessera::models
