#include "tessera/data/loader.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/core/rng.h"
#include "tessera/data/kept_plan.h"
#include "tessera/data/token_masks.h"

namespace tessera::data {

Loader::Loader(RowSet rows, const LoaderOptions& options) : rows_(std::move(rows)), options_(options) {
  TESSERA_ASSERT(options.dp_size > 0 && options.dp_rank >= 0 && options.dp_rank < options.dp_size,
                 "rank of no group");
  TESSERA_ASSERT(options.micro_batch_size > 0 && options.accumulation > 0, "empty batches");
  if (rows_.size() == 0)
    throw Error(ErrorKind::Data, "NO-ROWS", "there are no rows").got("0 rows").need("at least 1");
  std::set<int64_t> found;
  for (const int64_t row : rows_.rows) found.insert(rows_.store->dataset(row));
  datasets_.assign(found.begin(), found.end());
  if (options.packing) {
    std::vector<int64_t> lengths(rows_.rows.size());
    for (int64_t i = 0; i < rows_.size(); ++i) lengths[i] = rows_.length(i);
    plan_ = kept_plan(options.kept_in, options.packs_in_order ? "in order" : "first fit decreasing", lengths,
                      options.sequence_len, [&] {
                        return options.packs_in_order
                                   ? pack_in_order(lengths, options.sequence_len)
                                   : pack_first_fit_decreasing(lengths, options.sequence_len);
                      });
    efficiency_ = data::packing_efficiency(plan_, lengths, options.sequence_len);
  } else {
    plan_ = pack_one_each(rows_.size());
  }
  order_epoch();
}

std::vector<std::string> Loader::datasets() const {
  std::vector<std::string> names;
  for (const int64_t dataset : datasets_)
    names.push_back(has_several() ? rows_.store->dataset_name(dataset) : "");
  return names;
}

int64_t Loader::dataset_of(int64_t place) const {
  return std::ranges::lower_bound(datasets_, rows_.store->dataset(rows_.rows[place])) - datasets_.begin();
}

int64_t Loader::label_count(int64_t place) const {
  if (rows_.masks == nullptr) return rows_.label_count(place);
  return std::ssize(rows_.masks->draw(rows_.store->label_runs(rows_.rows[place]), place, cursor_.epoch));
}

int64_t Loader::steps_per_epoch() const {
  return (num_samples() + samples_per_step() - 1) / samples_per_step();
}

void Loader::seek(const Cursor& cursor, bool takes_other_data) {
  if (takes_other_data && cursor.sample >= num_samples()) return seek({cursor.epoch + 1, 0});
  if (cursor.epoch < 0 || cursor.sample < 0 || cursor.sample >= num_samples()) {
    throw Error(ErrorKind::Checkpoint, "CURSOR", "the data position lies outside the dataset")
        .got("epoch " + std::to_string(cursor.epoch) + ", sample " + std::to_string(cursor.sample))
        .need("a sample below " + std::to_string(num_samples()))
        .hint("the dataset or the packing differs from the run that saved the position");
  }
  cursor_ = {cursor.epoch, cursor.sample};
  order_epoch();
}

void Loader::order_epoch() {
  if (ordered_epoch_ == cursor_.epoch) return;
  if (options_.shuffle) {
    order_ = random_order(num_samples(), options_.seed, "data.epoch", static_cast<uint64_t>(cursor_.epoch));
    if (options_.groups_by_length) group_by_length();
  } else if (order_.empty()) {
    order_.resize(static_cast<size_t>(num_samples()));
    std::iota(order_.begin(), order_.end(), 0);
  }
  ordered_epoch_ = cursor_.epoch;
}

int64_t Loader::length_of_sample(int64_t sample) const {
  int64_t length = 0;
  for (const int64_t place : plan_.sequence(sample)) length += rows_.length(place);
  return length;
}

void Loader::group_by_length() {
  constexpr int64_t kLargestGroup = 2048, kFewestGroups = 4;
  const int64_t size = std::clamp<int64_t>(num_samples() / kFewestGroups, 1, kLargestGroup);
  const auto is_longer = [&](int64_t a, int64_t b) { return length_of_sample(a) > length_of_sample(b); };
  for (int64_t begin = 0; begin < num_samples(); begin += size) {
    const auto first = order_.begin() + begin;
    std::stable_sort(first, first + std::min(size, num_samples() - begin), is_longer);
  }
  // The longest sample comes first, so that a batch that does not fit into memory shows in the first step.
  std::iter_swap(order_.begin(), std::min_element(order_.begin(), order_.end(), is_longer));
}

Step Loader::next_step(bool makes_batches) {
  const int64_t cells_per_micro_step = options_.dp_size * options_.micro_batch_size;
  const int64_t begin = cursor_.sample;
  const int64_t samples = std::min(num_samples() - begin, cells_per_micro_step * options_.accumulation);
  // Taken over all ranks, a micro-batch holds the same samples for any number of ranks, also where few
  // samples are left: the balance of experts depends on what is in it. So the last samples are not spread
  // evenly, and some ranks' micro-batches may be empty.
  const int64_t micro_steps = (samples + cells_per_micro_step - 1) / cells_per_micro_step;
  // A cell is the part of a micro-batch that one rank has: micro_batch_size samples, fewer at the end.
  const auto end_of = [&](int64_t cell) {
    return begin + std::min(samples, cell * options_.micro_batch_size);
  };

  Step step;
  step.epoch = cursor_.epoch;
  step.samples = samples;
  if (has_several()) step.dataset_label_tokens.assign(datasets_.size(), 0);
  for (int64_t sample = begin; sample < begin + samples; ++sample) {
    for (const int64_t row : rows_of_sample(sample)) {
      step.tokens += rows_.length(row);
      step.token_pairs += rows_.length(row) * rows_.length(row);
      const int64_t labels = label_count(row);
      step.label_tokens += labels;
      if (has_several()) step.dataset_label_tokens[dataset_of(row)] += labels;
    }
  }
  for (int64_t micro_step = 0; makes_batches && micro_step < micro_steps; ++micro_step) {
    const int64_t cell = micro_step * options_.dp_size + options_.dp_rank;
    step.micro_batches.push_back(make_micro_batch(end_of(cell), end_of(cell + 1)));
  }

  cursor_.sample += samples;
  if (cursor_.sample == num_samples()) {
    step.ends_epoch = true;
    cursor_ = {cursor_.epoch + 1, 0};
    order_epoch();
  }
  step.next = cursor_;
  step.epochs_done = static_cast<double>(cursor_.epoch) +
                     static_cast<double>(cursor_.sample) / static_cast<double>(num_samples());
  return step;
}

void Loader::add_labels(int64_t place, size_t start, MicroBatch& batch) const {
  const int64_t row = rows_.rows[place];
  const auto tokens = rows_.store->tokens(row);
  const auto runs = rows_.store->label_runs(row);
  batch.labels.resize(start + tokens.size(), kIgnoreLabel);
  if (rows_.masks != nullptr) {
    for (const MaskedToken& masked : rows_.masks->draw(runs, place, cursor_.epoch)) {
      const size_t at = start + static_cast<size_t>(masked.position);
      batch.labels[at] = batch.input_ids[at];
      if (masked.shown) batch.input_ids[at] = *masked.shown;
      ++batch.label_tokens;
    }
    return;
  }
  const auto targets = rows_.store->targets(row);
  int64_t next_target = batch.label_tokens;
  for (const LabelRun& run : runs) {
    for (int32_t i = run.begin; !targets.empty() && i < run.end; ++i) batch.labels[start + i] = next_target++;
    // Position i - 1 predicts token i, so nothing predicts the first token.
    for (int32_t i = std::max(run.begin, 1); targets.empty() && i < run.end; ++i)
      batch.labels[start + i - 1] = tokens[i];
  }
  batch.targets.insert(batch.targets.end(), targets.begin(), targets.end());
  batch.label_tokens += rows_.store->label_count(row);
}

MicroBatch Loader::make_micro_batch(int64_t begin_sample, int64_t end_sample) const {
  MicroBatch batch;
  batch.document_starts.push_back(0);
  batch.first_sequence = begin_sample - cursor_.sample;
  for (int64_t sample = begin_sample; sample < end_sample; ++sample) {
    batch.sequence_starts.push_back(batch.document_starts.back());
    for (const int64_t place : rows_of_sample(sample)) {
      const int64_t row = rows_.rows[place];
      rows_.store->check(row);
      const auto tokens = rows_.store->tokens(row);
      const size_t start = batch.input_ids.size();
      batch.input_ids.insert(batch.input_ids.end(), tokens.begin(), tokens.end());
      add_labels(place, start, batch);
      const auto types = rows_.store->type_ids(row);
      size_t second = 0;  // where the second document of a pair begins
      if (rows_.store->are_pairs()) {
        second = static_cast<size_t>(std::ranges::find(types, 1) - types.begin());
        batch.document_starts.push_back(static_cast<int64_t>(start + second));
      } else if (!types.empty()) {
        batch.type_ids.resize(start, 0);
        batch.type_ids.insert(batch.type_ids.end(), types.begin(), types.end());
      }
      for (size_t i = 0; i < tokens.size(); ++i)
        batch.position_ids.push_back(static_cast<int64_t>(i < second ? i : i - second));
      batch.document_starts.push_back(static_cast<int64_t>(batch.input_ids.size()));
      if (has_several()) batch.datasets.resize(batch.input_ids.size(), dataset_of(place));
    }
  }
  batch.sequence_starts.push_back(batch.document_starts.back());
  if (!batch.type_ids.empty()) batch.type_ids.resize(batch.input_ids.size(), 0);
  return batch;
}

std::vector<int64_t> random_order(int64_t size, uint64_t seed, const char* stream, uint64_t step) {
  const CounterRng rng(seed, stream_of(stream), step);
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = size - 1; i > 0; --i) {
    std::swap(order[i], order[rng.below(static_cast<uint64_t>(i), static_cast<uint64_t>(i) + 1)]);
  }
  return order;
}

}  // namespace tessera::data
