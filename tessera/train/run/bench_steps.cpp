#include "tessera/train/run/bench_steps.h"

#include <numeric>
#include <optional>

#include <ATen/Parallel.h>

#include "tessera/core/rng.h"
#include "tessera/data/curriculum_loader.h"
#include "tessera/data/loader_options.h"
#include "tessera/train/setup/recipe_data.h"
#include "tessera/train/setup/recipe_tokenizer.h"

namespace tessera::train {
namespace {

// Returns how many tokens of a document of an encoder-decoder are its source; the rest is its target.
int64_t source_tokens(const config::Recipe& recipe) { return recipe.sequence_len - recipe.sequence_len / 2; }

constexpr int64_t kMaskedEvery = 7;  // every so many tokens one is told: 14 % of them

int64_t labels_of_document(const config::Recipe& recipe, const models::ModelConfig& model) {
  if (model.tells_tokens()) return recipe.sequence_len;
  if (model.classification) return recipe.task == config::Task::RewardModel ? 2 : 1;
  if (model.is_masked_lm) return (recipe.sequence_len + kMaskedEvery - 1) / kMaskedEvery;
  return recipe.sequence_len - 1 - (model.is_encoder_decoder ? source_tokens(recipe) : 0);
}

void add_sides(const config::Recipe& recipe, data::MicroBatch& batch) {
  for (const int64_t position : batch.position_ids)
    batch.type_ids.push_back(position < source_tokens(recipe) ? 0 : 1);
}

// Makes micro-batch `index` of a step, counted over all data-parallel ranks. Document number d of the step
// holds the same tokens for any number of ranks. The targets of a classifier are 0. A pair of texts is one
// document of other tasks, cut in the middle.
data::MicroBatch random_batch(const config::Recipe& recipe, const models::ModelConfig& model, int64_t index) {
  const int64_t vocab_size = model.vocab_size;
  const bool are_pairs = recipe.task == config::Task::RewardModel;
  const int64_t first_of_pair = are_pairs ? recipe.sequence_len / 2 : 0;
  data::MicroBatch batch;
  batch.document_starts = {0};
  batch.sequence_starts = {0};
  for (int64_t document = 0; document < recipe.micro_batch_size; ++document) {
    const CounterRng rng(static_cast<uint64_t>(recipe.seed), stream_of("bench tokens"),
                         static_cast<uint64_t>(index * recipe.micro_batch_size + document));
    for (int64_t i = 0; i < recipe.sequence_len; ++i) {
      batch.input_ids.push_back(
          static_cast<int64_t>(rng.below(static_cast<uint64_t>(i), static_cast<uint64_t>(vocab_size))));
      if (are_pairs && i == first_of_pair) batch.document_starts.push_back(std::ssize(batch.input_ids) - 1);
      batch.position_ids.push_back(i < first_of_pair ? i : i - first_of_pair);
    }
    batch.document_starts.push_back(std::ssize(batch.input_ids));
    batch.sequence_starts.push_back(std::ssize(batch.input_ids));
  }
  batch.first_sequence = index * recipe.micro_batch_size;
  if (model.classification) {
    batch.labels.assign(batch.input_ids.size(), kIgnoreLabel);
    if (model.tells_tokens()) std::iota(batch.labels.begin(), batch.labels.end(), 0);
    for (size_t d = 0; !model.tells_tokens() && d + 1 < batch.document_starts.size(); ++d) {
      const int64_t read = model.is_encoder ? batch.document_starts[d] : batch.document_starts[d + 1] - 1;
      batch.labels[static_cast<size_t>(read)] = static_cast<int64_t>(d);
    }
    batch.label_tokens = recipe.micro_batch_size * labels_of_document(recipe, model);
    batch.targets.resize(static_cast<size_t>(batch.label_tokens * model.classification->target_width()));
    return batch;
  }
  if (model.is_masked_lm) {
    batch.labels = batch.input_ids;
    for (size_t i = 0; i < batch.labels.size(); ++i) {
      if (batch.position_ids[i] % kMaskedEvery != 0) batch.labels[i] = kIgnoreLabel;
    }
    batch.label_tokens = recipe.micro_batch_size * labels_of_document(recipe, model);
    return batch;
  }
  if (model.is_encoder_decoder) add_sides(recipe, batch);
  batch.labels.assign(batch.input_ids.begin() + 1, batch.input_ids.end());
  batch.labels.push_back(kIgnoreLabel);
  for (size_t d = 1; d < batch.document_starts.size(); ++d) {
    batch.labels[batch.document_starts[d] - 1] = kIgnoreLabel;
  }
  for (size_t i = 0; i < batch.type_ids.size(); ++i) {
    if (batch.type_ids[i] == 0) batch.labels[i] = kIgnoreLabel;
  }
  batch.label_tokens = recipe.micro_batch_size * labels_of_document(recipe, model);
  return batch;
}

// Gives the same step of random tokens again and again.
class RandomSteps : public data::StepSource {
 public:
  RandomSteps(const config::Recipe& recipe, const models::ModelConfig& model, int64_t dp_rank,
              int64_t dp_size)
      : samples_(dp_size * recipe.gradient_accumulation_steps * recipe.micro_batch_size) {
    for (int64_t m = 0; m < recipe.gradient_accumulation_steps; ++m) {
      step_.micro_batches.push_back(random_batch(recipe, model, m * dp_size + dp_rank));
    }
    step_.tokens = samples_ * recipe.sequence_len;
    step_.label_tokens = samples_ * labels_of_document(recipe, model);
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
    return std::make_unique<BenchSteps>(std::make_unique<RandomSteps>(recipe, model, dp_rank, dp_size));
  }
  config::Problems problems;
  std::optional<text::Tokenizer> tokenizer = load_recipe_tokenizer(recipe, problems);
  problems.settle();
  const data::PreparedData prepared = read_recipe_data(recipe, model, tokenizer, at::get_num_threads());
  return std::make_unique<BenchSteps>(
      data::open_loader(prepared.train, recipe, data::train_loader_options(recipe, dp_rank, dp_size)));
}

}  // namespace tessera::train
