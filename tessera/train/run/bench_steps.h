// Makes the steps that `tessera bench train` trains on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/config/recipe.h"
#include "tessera/data/step_source.h"
#include "tessera/models/common/model_config.h"
#include "tessera/parallel/device_mesh.h"

namespace tessera::train {

// Gives a training the steps of another source, of which make_next() makes each, so that taking it costs the
// training no time.
class BenchSteps : public data::StepSource {
 public:
  explicit BenchSteps(std::unique_ptr<data::StepSource> source) : source_(std::move(source)) {}

  void make_next() { next_ = source_->next_step(); }
  data::Step next_step() override { return std::move(next_); }
  data::Cursor cursor() const override { return source_->cursor(); }
  void seek(const data::Cursor& cursor, bool takes_other_data = false) override {
    source_->seek(cursor, takes_other_data);
  }
  std::vector<std::string> datasets() const override { return source_->datasets(); }
  int64_t samples_per_step() const override { return source_->samples_per_step(); }
  int64_t steps_per_epoch() const override { return source_->steps_per_epoch(); }

 private:
  std::unique_ptr<data::StepSource> source_;
  data::Step next_;
};

// Returns the source of a benchmark's steps. With `trains_on_data` the steps are those of the recipe's
// datasets, dealt as training deals them. Otherwise each step has gradient_accumulation_steps micro-batches
// of micro_batch_size documents of sequence_len random tokens, the same ones at every step and for any number
// of ranks. Not collective. Throws what load_recipe_tokenizer() and read_recipe_data() throw.
std::unique_ptr<BenchSteps> bench_steps(const config::Recipe& recipe, bool trains_on_data,
                                        const models::ModelConfig& model, const parallel::DeviceMesh& mesh);

}  // namespace tessera::train
