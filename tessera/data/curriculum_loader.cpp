#include "tessera/data/curriculum_loader.h"

#include <map>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/data/mix.h"

namespace tessera::data {
namespace {

std::vector<bool> entries_with_rows(const RowSet& rows, size_t num_entries) {
  std::vector<bool> has_rows(num_entries, false);
  for (const int64_t row : rows.rows) has_rows[static_cast<size_t>(rows.store->dataset(row))] = true;
  return has_rows;
}

LoaderOptions of_one_sequence(const LoaderOptions& options) {
  LoaderOptions one = options;
  one.dp_rank = 0;
  one.dp_size = one.accumulation = one.micro_batch_size = 1;
  one.groups_by_length = false;
  return one;
}

void append(const MicroBatch& sequence, MicroBatch& batch) {
  const auto extend = [](std::vector<int64_t>& to, const std::vector<int64_t>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  const int64_t base = batch.document_starts.back();
  extend(batch.input_ids, sequence.input_ids);
  extend(batch.labels, sequence.labels);
  extend(batch.position_ids, sequence.position_ids);
  for (size_t d = 1; d < sequence.document_starts.size(); ++d)
    batch.document_starts.push_back(base + sequence.document_starts[d]);
}

}  // namespace

CurriculumLoader::CurriculumLoader(const RowSet& rows, const config::DataConfig& config,
                                   const LoaderOptions& options)
    : MixedLoader(config.datasets, entries_with_rows(rows, config.datasets.size()), options, "datasets") {
  std::map<int64_t, RowSet> by_entry;
  for (const int64_t row : rows.rows) {
    RowSet& own = by_entry[rows.store->dataset(row)];
    own.store = rows.store;
    own.masks = rows.masks;
    own.rows.push_back(row);
  }
  if (by_entry.empty())
    throw Error(ErrorKind::Data, "NO-ROWS", "there are no rows").got("0 rows").need("at least 1");
  for (auto& [entry, own] : by_entry) {
    names_.push_back(rows.store->dataset_name(entry));
    sources_.emplace_back(std::move(own), of_one_sequence(options));
  }
}

DrawnRows CurriculumLoader::sample(int64_t num_sequences) {
  DrawnRows drawn;
  for (int64_t i = 0; i < num_sequences; ++i) {
    Loader& source = sources_[draw()];
    drawn.rows.store = source.rows().store;
    for (const int64_t place : source.rows_of_sample(source.cursor().sample)) {
      drawn.sequences.items.push_back(drawn.rows.size());
      drawn.rows.rows.push_back(source.rows().rows[place]);
    }
    drawn.sequences.offsets.push_back(drawn.rows.size());
    source.next_step(false);
  }
  return drawn;
}

SequenceCounts CurriculumLoader::take(size_t source, MicroBatch* batch) {
  const Step one = sources_[source].next_step(batch != nullptr);
  if (batch != nullptr) append(one.micro_batches.front(), *batch);
  return {one.tokens, one.label_tokens, one.token_pairs};
}

StreamPlace CurriculumLoader::place_of(size_t source) const {
  const Cursor own = sources_[source].cursor();
  return {.pass = own.epoch, .record = own.sample};
}

void CurriculumLoader::seek_source(size_t source, const StreamPlace& place, bool takes_other_data) {
  sources_[source].seek({place.pass, place.record}, takes_other_data);
}

std::unique_ptr<StepSource> open_loader(const RowSet& rows, const config::DataConfig& config,
                                        const LoaderOptions& options) {
  if (has_curriculum(config)) return std::make_unique<CurriculumLoader>(rows, config, options);
  return std::make_unique<Loader>(rows, options);
}

}  // namespace tessera::data
