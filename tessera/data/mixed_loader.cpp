#include "tessera/data/mixed_loader.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/core/log.h"

namespace tessera::data {

MixedLoader::MixedLoader(const std::vector<config::DatasetConfig>& datasets,
                         const std::vector<bool>& is_there, const LoaderOptions& options, std::string noun)
    : options_(options),
      noun_(std::move(noun)),
      mix_(datasets, is_there, options.seed, options.samples_per_step()) {
  // The source of an entry has as its number the count of entries before it that are there.
  std::exclusive_scan(is_there.begin(), is_there.end(), std::back_inserter(source_of_entry_), size_t{0});
}

std::vector<std::string> MixedLoader::datasets() const {
  return names_.size() > 1 ? names_ : std::vector<std::string>(names_.size());
}

Cursor MixedLoader::cursor() const {
  Cursor cursor = {0, sample_};
  for (size_t source = 0; source < names_.size(); ++source) cursor.streams.push_back(place_of(source));
  return cursor;
}

void MixedLoader::seek(const Cursor& cursor, bool takes_other_data) {
  try {
    if (cursor.epoch != 0 || cursor.sample < 0 || cursor.streams.size() != names_.size()) {
      throw Error(ErrorKind::Checkpoint, "CURSOR", "the data position is not one of these datasets")
          .got(std::to_string(cursor.streams.size()) + ' ' + noun_)
          .need(std::to_string(names_.size()))
          .hint("the datasets differ from the run that saved the position");
    }
    for (size_t source = 0; source < names_.size(); ++source)
      seek_source(source, cursor.streams[source], takes_other_data);
  } catch (const Error& error) {
    if (!takes_other_data || error.kind() != ErrorKind::Checkpoint) throw;
    log::warn("the " + noun_ + " start again: " + error.what());
    for (size_t source = 0; source < names_.size(); ++source) seek_source(source, {}, true);
  }
  sample_ = std::max<int64_t>(cursor.sample, 0);
}

Step MixedLoader::next_step() {
  Step step;
  step.samples = samples_per_step();
  const bool has_several = names_.size() > 1;
  if (has_several) step.dataset_label_tokens.assign(names_.size(), 0);
  for (int64_t cell = 0; cell < options_.accumulation * options_.dp_size; ++cell) {
    // Every rank takes all sequences, so that the sources of all ranks stay at the same place; only its own
    // ones go into its batches.
    const bool is_own = cell % options_.dp_size == options_.dp_rank;
    MicroBatch batch;
    batch.document_starts.push_back(0);
    batch.first_sequence = cell * options_.micro_batch_size;
    for (int64_t i = 0; i < options_.micro_batch_size; ++i) {
      batch.sequence_starts.push_back(batch.document_starts.back());
      const size_t source = draw();
      const SequenceCounts counts = take(source, is_own ? &batch : nullptr);
      step.tokens += counts.tokens;
      step.label_tokens += counts.label_tokens;
      step.token_pairs += counts.token_pairs;
      batch.label_tokens += counts.label_tokens;
      if (!has_several) continue;
      step.dataset_label_tokens[source] += counts.label_tokens;
      batch.datasets.resize(batch.input_ids.size(), static_cast<int64_t>(source));
    }
    batch.sequence_starts.push_back(batch.document_starts.back());
    if (is_own) step.micro_batches.push_back(std::move(batch));
  }
  step.next = cursor();
  // The passes done are those that all sources have gone through.
  int64_t fewest = step.next.streams.front().pass;
  for (const StreamPlace& place : step.next.streams) fewest = std::min(fewest, place.pass);
  step.epochs_done = static_cast<double>(fewest);
  return step;
}

}  // namespace tessera::data
