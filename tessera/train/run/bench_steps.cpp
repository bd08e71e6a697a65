#include "tessera/train/run/bench_steps.h"

#include <optional>

#include <ATen/Parallel.h>

#include "tessera/core/rng.h"
#include "tessera/data/curriculum_loader.h"
#include "tessera/data/loader_options.h"
#include "tessera/train/setup/recipe_data.h"

namespace tessera::train {
namespace {

// Makes micro-batch `index` of a step, counted over all data-parallel ranks. Document number d of the step
// holds the same tokens for any number of ranks.
data::MicroBatch random_batch(const config::Recipe& recipe, int64_t vocab_size, int64_t index) {
  data::MicroBatch batch;
  batch.document_starts = {0};
  for (int64_t document = 0; document < recipe.micro_batch_size; ++document) {
    const CounterRng rng(static_cast<uint64_t>(recipe.seed), stream_of("bench tokens"),
                         static_cast<uint64_t>(index * recipe.micro_batch_size + document));
    for (int64_t i = 0; i < recipe.sequence_len; ++i) {
      batch.input_ids.push_back(
          static_cast<int64_t>(rng.below(static_cast<uint64_t>(i), static_cast<uint64_t>(vocab_size))));
      batch.position_ids.push_back(i);
    }
    batch.document_starts.push_back(static_cast<int64_t>(batch.input_ids.size()));
  }
  batch.sequence_starts = batch.document_starts;
  batch.first_sequence = index * recipe.micro_batch_size;
  batch.labels.assign(batch.input_ids.begin() + 1, batch.input_ids.end());
  batch.labels.push_back(kIgnoreLabel);
  for (size_t d = 1; d < batch.document_starts.size(); ++d) {
    batch.labels[batch.document_starts[d] - 1] = kIgnoreLabel;
  }
  batch.label_tokens = recipe.micro_batch_size * (recipe.sequence_len - 1);
  return batch;
}

// Gives the same step of random tokens again and again.
class RandomSteps : public data::StepSource {
 public:
  RandomSteps(const config::Recipe& recipe, int64_t vocab_size, int64_t dp_rank, int64_t dp_size)
      : samples_(dp_size * recipe.gradient_accumulation_steps * recipe.micro_batch_size) {
    for (int64_t m = 0; m < recipe.gradient_accumulation_steps; ++m) {
      step_.micro_batches.push_back(random_batch(recipe, vocab_size, m * dp_size + dp_rank));
    }
    step_.tokens = samples_ * recipe.sequence_len;
    step_.label_tokens = samples_ * (recipe.sequence_len - 1);
  }

  data::Step next_step() override { return step_; }
  data::Cursor cursor() const override { return {}; }
  void seek(const data::Cursor&, bool) override {}
  std::vector<std::string> datasets() const override { return {}; }
  int64_t samples_per_step() const override { return samples_; }
  int64_t steps_per_epoch() const override { return 0; }

 private:
  const int64_t samples_;
  data::Step step_;
};

}  // namespace

std::unique_ptr<BenchSteps> bench_steps(const config::Recipe& recipe, bool trains_on_data,
                                        const models::ModelConfig& model, const parallel::DeviceMesh& mesh) {
  const int64_t dp_rank = mesh.coordinate(parallel::kAxisDp), dp_size = mesh.size(parallel::kAxisDp);
  if (!trains_on_data) {
    return std::make_unique<BenchSteps>(
        std::make_unique<RandomSteps>(recipe, model.vocab_size, dp_rank, dp_size));
  }
  config::Problems problems;
  std::optional<text::Tokenizer> tokenizer = load_recipe_tokenizer(recipe, problems);
  problems.settle();
  const data::PreparedData prepared = read_recipe_data(recipe, model, tokenizer, at::get_num_threads());
  return std::make_unique<BenchSteps>(
      data::open_loader(prepared.train, recipe, data::train_loader_options(recipe, dp_rank, dp_size)));
}

}  // namespace tessera::train
