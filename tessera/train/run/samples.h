// Lets the model that is trained continue prompts of the evaluation data, between two steps.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/config/recipe.h"
#include "tessera/data/row_store.h"
#include "tessera/models/common/causal_lm.h"
#include "tessera/text/tokenizer/tokenizer.h"
#include "tessera/train/setup/setup.h"
#include "tessera/train/step/metrics.h"

namespace tessera::train {

class Samples {
 public:
  // Takes the first eval_table_size of `rows` that train a token, from each dataset in turn. The prompt of a
  // row is what stands before its first trained token, or its first half where the row is trained from its
  // beginning on. Of a prompt that leaves too little room for an answer the end is taken. The tokenizer must
  // outlive this object. Throws Error(Config, "SAMPLES") without one.
  Samples(const config::Recipe& recipe, const models::CausalLM& model,
          const std::optional<text::Tokenizer>& tokenizer, const data::RowSet& rows);

  int64_t size() const { return std::ssize(prompts_); }
  // Returns "5 prompts, by up to 128 tokens".
  std::string describe() const;

  // Continues the prompts with the likeliest tokens. Returns the samples on the first rank of `world`, and
  // none elsewhere. Calls `on_pass` with the number of samples that are done; where that returns false, on
  // all ranks alike, this ends and returns nothing. The model is afterwards what it was. Collective.
  std::optional<std::vector<Sample>> make(TrainedModel& trained, comm::Communicator& world,
                                          const std::function<bool(int64_t done)>& on_pass) const;

 private:
  void add(const data::RowStore& store, int64_t row, const std::string& dataset, bool has_sides);

  const int64_t max_new_tokens_, max_length_;  // max_length_: of a prompt with its answer
  const text::Tokenizer* tokenizer_;
  std::vector<int64_t> stop_ids_;
  std::vector<std::vector<int64_t>> prompts_;
  std::vector<Sample> samples_;  // without what is generated
};

}  // namespace tessera::train
