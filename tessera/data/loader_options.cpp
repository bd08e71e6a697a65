#include "tessera/data/loader_options.h"

namespace tessera::data {

LoaderOptions train_loader_options(const config::Recipe& recipe, int64_t dp_rank, int64_t dp_size) {
  LoaderOptions options;
  options.dp_rank = dp_rank;
  options.dp_size = dp_size;
  options.micro_batch_size = recipe.micro_batch_size;
  options.accumulation = recipe.gradient_accumulation_steps;
  // A pipeline cuts the same samples into micro-batches of another size.
  if (recipe.pipeline_microbatches > 0) {
    options.accumulation = recipe.pipeline_microbatches;
    options.micro_batch_size =
        recipe.micro_batch_size * recipe.gradient_accumulation_steps / recipe.pipeline_microbatches;
  }
  options.sequence_len = recipe.sequence_len;
  options.packing = recipe.sample_packing;
  options.packs_in_order = recipe.sample_packing_sequentially;
  options.shuffle = recipe.shuffle_merged_datasets;
  options.groups_by_length = recipe.group_by_length && !recipe.sample_packing;
  options.seed = static_cast<uint64_t>(recipe.seed);
  options.kept_in = recipe.dataset_prepared_path;
  return options;
}

LoaderOptions eval_loader_options(const config::Recipe& recipe, int64_t dp_rank, int64_t dp_size) {
  LoaderOptions options = train_loader_options(recipe, dp_rank, dp_size);
  options.micro_batch_size = recipe.micro_batch_size;
  options.accumulation = 1;
  options.packing = recipe.eval_sample_packing.value_or(recipe.sample_packing);
  options.shuffle = false;
  // Rows that val_set_size holds out are as long as those to train on: eval_sequence_len is for
  // test_datasets.
  if (recipe.eval_sequence_len > 0 && !recipe.test_datasets.empty())
    options.sequence_len = recipe.eval_sequence_len;
  return options;
}

}  // namespace tessera::data
