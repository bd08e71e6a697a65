#include "tessera/data/prepare.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/data/dataset_reader.h"
#include "tessera/data/deduplicate.h"
#include "tessera/data/kept_plan.h"
#include "tessera/data/loader.h"
#include "tessera/data/mix.h"
#include "tessera/data/prompts/llama_factory.h"
#include "tessera/data/readers/dataset_files.h"

namespace tessera::data {
namespace {

// Makes the last rows of the training set the evaluation set.
void split_off_eval(double val_set_size, PreparedData& data) {
  if (val_set_size <= 0.0) return;
  const int64_t num_rows = data.train.size();
  const double wanted = val_set_size < 1.0 ? val_set_size * static_cast<double>(num_rows) : val_set_size;
  const auto num_eval = static_cast<int64_t>(std::ceil(std::min(wanted, 9e15)));
  if (num_eval >= num_rows) {
    throw Error(ErrorKind::Data, "VAL-SET-SIZE", "val_set_size leaves no row to train on")
        .got(std::to_string(num_eval) + " of " + std::to_string(num_rows) + " rows")
        .need("less than all");
  }
  data.eval.store = data.train.store;
  data.eval.rows.assign(data.train.rows.end() - num_eval, data.train.rows.end());
  data.train.rows.resize(static_cast<size_t>(num_rows - num_eval));
}

// Leaves out rows that are identical to an earlier one, or nearly. This includes the rows of datasets to
// evaluate on.
void drop_duplicates(const config::DataConfig& config, const PrepareOptions& options, PreparedData& data) {
  if (!config.dataset_exact_deduplication && config.dataset_near_deduplication == 0.0) return;
  const RowStore& store = *data.train.store;
  constexpr uint8_t kSame = 1, kNearly = 2;
  const auto find = [&] {
    std::vector<bool> is_left_out = find_duplicates(store);
    std::vector<uint8_t> marks(is_left_out.begin(), is_left_out.end());
    if (config.dataset_near_deduplication > 0.0) {
      const int64_t num_threads =
          options.num_threads > 0 ? options.num_threads : std::max(1U, std::thread::hardware_concurrency());
      find_near_duplicates(store, config.dataset_near_deduplication, num_threads, is_left_out);
      for (size_t row = 0; row < marks.size(); ++row) {
        if (is_left_out[row] && marks[row] == 0) marks[row] = kNearly;
      }
    }
    return marks;
  };
  std::vector<uint64_t> hashes;
  for (int64_t row = 0; row < store.size(); ++row) hashes.push_back(store.hash(row));
  const std::vector<uint8_t> marks =
      kept_marks(config.dataset_prepared_path,
                 "duplicates " + std::to_string(config.dataset_near_deduplication), hashes, find);
  const auto same = std::ranges::count(marks, kSame), nearly = std::ranges::count(marks, kNearly);
  log::info("left out: " + std::to_string(same) + " rows that are identical to an earlier one" +
            (nearly > 0 ? ", " + std::to_string(nearly) + " that are nearly identical" : "") + ", of " +
            std::to_string(store.size()));
  for (RowSet* rows : {&data.train, &data.eval})
    std::erase_if(rows->rows, [&](int64_t row) { return marks[static_cast<size_t>(row)] != 0; });
}

PreparedData prepare(const PromptContext& context, const PrepareOptions& options) {
  const config::DataConfig& config = context.config;
  const auto store = std::make_shared<RowStore>();
  store->set_pairs(context.classification != nullptr && context.classification->of_pairs);
  // A streamed dataset is not prepared here. Evaluation rows are prepared even then, as they are without a
  // stream.
  config::DataConfig eval_config = config;
  eval_config.streaming = false;
  if (config.eval_sequence_len > 0) eval_config.sequence_len = config.eval_sequence_len;
  PromptContext eval_context = {eval_config,        context.tokenizer, context.chat_template,
                                context.vocab_size, context.now,       context.classification,
                                context.seq2seq,    context.masked};
  DatasetReader reader(context, options), eval_reader(eval_context, options);

  PreparedData data;
  const auto read = [&](const config::DatasetConfig& dataset, DatasetReader& by) {
    store->begin_dataset(short_name(dataset));
    return by.read(dataset, *store);
  };
  if (!config.streaming) {
    for (const config::DatasetConfig& entry : config.datasets)
      data.train_stats.push_back(read(resolve_dataset_info(entry, config.source_folder), reader));
  }
  const int64_t num_train = store->size();
  for (const config::DatasetConfig& entry : config.test_datasets) {
    config::DatasetConfig dataset = resolve_dataset_info(entry, config.source_folder);
    dataset.split = split_to_evaluate(dataset, config.source_folder);
    data.eval_stats.push_back(read(dataset, eval_reader));
  }
  if (num_train == 0 && !config.streaming) {
    throw Error(ErrorKind::Data, "NO-ROWS", "the recipe names no datasets").got("0 rows").need("datasets:");
  }

  data.train.store = store;
  data.eval.store = store;
  if (config.shuffle_merged_datasets) {
    data.train.rows = random_order(num_train, options.seed, "data.merge");
  } else {
    data.train.rows.resize(static_cast<size_t>(num_train));
    std::iota(data.train.rows.begin(), data.train.rows.end(), 0);
  }
  data.eval.rows.resize(static_cast<size_t>(store->size() - num_train));
  std::iota(data.eval.rows.begin(), data.eval.rows.end(), num_train);
  drop_duplicates(config, options, data);
  if (config.test_datasets.empty()) split_off_eval(config.val_set_size, data);
  if (!config.streaming) data.train.rows = mix_rows(data.train, config, options.seed);
  return data;
}

}  // namespace

PreparedData prepare_data(const config::DataConfig& config, const text::Tokenizer& tokenizer,
                          const text::ChatTemplate* chat_template, const PrepareOptions& options) {
  return prepare(
      {config, &tokenizer, chat_template, options.vocab_size, options.now.value_or(text::local_clock()),
       options.classification ? &*options.classification : nullptr,
       options.seq2seq ? &*options.seq2seq : nullptr, options.masked ? &*options.masked : nullptr},
      options);
}

PreparedData prepare_token_ids(const config::DataConfig& config, const PrepareOptions& options) {
  TESSERA_ASSERT(options.vocab_size > 0, "without a tokenizer the vocabulary's size must be given");
  return prepare({config, nullptr, nullptr, options.vocab_size}, options);
}

}  // namespace tessera::data
