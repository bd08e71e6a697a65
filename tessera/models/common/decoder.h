// One token of each of some sequences at a time, by work that a device has recorded.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tessera/core/device_graph.h"
#include "tessera/models/common/causal_lm.h"

namespace tessera::models {

// Logits of next tokens, [at least as many rows as sequences, vocabulary], where the model computes. On a
// device with streams also likeliest_tokens() of them; undefined elsewhere. Good until the next call of who
// gave them.
struct NextLogits {
  at::Tensor logits, likeliest;
};

// On a device with streams a decoding step works with tensors that stay at their place: the host copies ids,
// positions and the numbers of pages into them, once a step and without a wait. Sequences are filled up to a
// power of two of rows, and pages to one of columns; each such shape runs once as it is, is then recorded
// (core/device_graph.h), and replayed from there on, until the cache gets more pages and with them another
// place. Where the device cannot record, or is not asked to, the same operations run one by one, to the same
// bits. Elsewhere, and for models of which decode() is not the device's alone, all is
// CausalLM::next_logits().
//
// The model and the cache must outlive it, and the model keeps its parameters where they are.
class Decoder {
 public:
  Decoder(CausalLM& model, nn::KvCache& cache, bool records = true);

  // As CausalLM::next_logits(); tokens of any number.
  NextLogits prefill(const std::vector<NewTokens>& batch);
  // As CausalLM::next_logits(); one token of each sequence.
  NextLogits decode(const std::vector<NewTokens>& batch);

 private:
  // The steps of one shape.
  struct Step {
    at::Tensor inputs;  // [3 + columns, rows] int64: ids, positions, first positions, pages
    NextLogits made;    // of the recording
    std::unique_ptr<DeviceGraph> graph;
    bool has_run = false;
  };

  NextLogits run(const Step& step);
  NextLogits run_or_replay(Step& step);

  CausalLM& model_;
  nn::KvCache& cache_;
  const bool has_streams_, is_placed_, records_;
  int64_t num_moves_ = 0;                              // of the cache, when steps were recorded
  std::map<std::pair<int64_t, int64_t>, Step> steps_;  // by rows and columns
};

}  // namespace tessera::models
