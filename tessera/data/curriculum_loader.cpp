#include "tessera/data/curriculum_loader.h"

#include <algorithm>
#include <map>

#include "tessera/core/error.h"
#include "tessera/core/log.h"

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
  batch.label_tokens += sequence.label_tokens;
}

}  // namespace

CurriculumLoader::CurriculumLoader(const RowSet& rows, const config::DataConfig& config,
                                   const LoaderOptions& options)
    : options_(options),
      source_of_entry_(config.datasets.size()),
      mix_(config.datasets, entries_with_rows(rows, config.datasets.size()), options.seed,
           samples_per_step()) {
  std::map<int64_t, RowSet> by_entry;
  for (const int64_t row : rows.rows) {
    RowSet& own = by_entry[rows.store->dataset(row)];
    own.store = rows.store;
    own.rows.push_back(row);
  }
  if (by_entry.empty())
    throw Error(ErrorKind::Data, "NO-ROWS", "there are no rows").got("0 rows").need("at least 1");
  for (auto& [entry, own] : by_entry) {
    source_of_entry_[static_cast<size_t>(entry)] = sources_.size();
    sources_.push_back({rows.store->dataset_name(entry), Loader(std::move(own), of_one_sequence(options))});
  }
}

std::vector<std::string> CurriculumLoader::datasets() const {
  std::vector<std::string> names;
  for (const Source& source : sources_) names.push_back(sources_.size() > 1 ? source.name : "");
  return names;
}

Cursor CurriculumLoader::cursor() const {
  Cursor cursor = {0, sample_};
  for (const Source& source : sources_) {
    const Cursor own = source.sequences.cursor();
    cursor.streams.push_back({.pass = own.epoch, .record = own.sample});
  }
  return cursor;
}

void CurriculumLoader::seek(const Cursor& cursor, bool takes_other_data) {
  const bool fits = cursor.epoch == 0 && cursor.sample >= 0 && cursor.streams.size() == sources_.size();
  if (!fits && !takes_other_data) {
    throw Error(ErrorKind::Checkpoint, "CURSOR", "the data position is not one of these datasets")
        .got(std::to_string(cursor.streams.size()) + " datasets")
        .need(std::to_string(sources_.size()))
        .hint("the datasets differ from the run that saved the position");
  }
  if (!fits) log::warn("the datasets begin anew: the checkpoint's are others");
  for (size_t i = 0; i < sources_.size(); ++i) {
    const StreamPlace place = fits ? cursor.streams[i] : StreamPlace{};
    sources_[i].sequences.seek({place.pass, place.record}, takes_other_data);
  }
  sample_ = std::max<int64_t>(cursor.sample, 0);
}

Step CurriculumLoader::next_step() {
  Step step;
  step.samples = samples_per_step();
  const bool has_several = sources_.size() > 1;
  if (has_several) step.dataset_label_tokens.assign(sources_.size(), 0);
  for (int64_t cell = 0; cell < options_.accumulation * options_.dp_size; ++cell) {
    const bool is_own = cell % options_.dp_size == options_.dp_rank;
    MicroBatch batch;
    batch.document_starts.push_back(0);
    for (int64_t i = 0; i < options_.micro_batch_size; ++i, ++sample_) {
      const size_t source = source_of_entry_[mix_.dataset_of(sample_)];
      const Step one = sources_[source].sequences.next_step(is_own);
      step.tokens += one.tokens;
      step.token_pairs += one.token_pairs;
      step.label_tokens += one.label_tokens;
      if (has_several) step.dataset_label_tokens[source] += one.label_tokens;
      if (!is_own) continue;
      append(one.micro_batches.front(), batch);
      if (has_several) batch.datasets.resize(batch.input_ids.size(), static_cast<int64_t>(source));
    }
    if (is_own) step.micro_batches.push_back(std::move(batch));
  }
  step.next = cursor();
  int64_t fewest = step.next.streams.front().pass;
  for (const StreamPlace& place : step.next.streams) fewest = std::min(fewest, place.pass);
  step.epochs_done = static_cast<double>(fewest);
  return step;
}

std::unique_ptr<StepSource> open_loader(const RowSet& rows, const config::DataConfig& config,
                                        const LoaderOptions& options) {
  if (has_curriculum(config)) return std::make_unique<CurriculumLoader>(rows, config, options);
  return std::make_unique<Loader>(rows, options);
}

}  // namespace tessera::data
