#include "tessera/data/stream/stream_loader.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "tessera/config/load_recipe.h"
#include "tessera/core/content_hash.h"
#include "tessera/core/error.h"
#include "tessera/core/log.h"
#include "tessera/core/version.h"
#include "tessera/data/dataset_reader.h"
#include "tessera/data/prompts/llama_factory.h"

namespace tessera::data {
namespace {

// Raise it when the same data make other sequences.
constexpr int64_t kVersion = 2;

}  // namespace

StreamLoader::StreamLoader(const config::DataConfig& config, const text::Tokenizer* tokenizer,
                           std::shared_ptr<const text::ChatTemplate> chat_template,
                           const PrepareOptions& prepare, const LoaderOptions& options,
                           std::shared_ptr<RowExchange> exchange)
    : config_([&] {
        config::DataConfig resolved = config;
        for (config::DatasetConfig& dataset : resolved.datasets)
          dataset = resolve_dataset_info(dataset, config.source_folder);
        return resolved;
      }()),
      chat_template_(std::move(chat_template)),
      context_{config_, tokenizer, chat_template_.get(), prepare.vocab_size,
               prepare.now.value_or(text::local_clock())},
      tokenizer_fingerprint_(prepare.tokenizer_fingerprint),
      options_(options),
      exchange_(exchange != nullptr && exchange->size() > 1 ? std::move(exchange) : nullptr),
      mix_(config_.datasets, std::vector<bool>(config_.datasets.size(), true), options.seed,
           samples_per_step()) {
  std::vector<std::string> names;
  for (const config::DatasetConfig& dataset : config_.datasets) {
    WindowOptions window;
    window.shuffles = options.shuffle;
    window.seed = options.seed;
    window.dataset = std::ssize(sources_);
    window.most_documents = config_.streaming_multipack_buffer_size;
    window.skips_bad = config_.on_bad_line == "skip";
    names.push_back(unique_name(short_name(dataset), names));
    sources_.push_back(
        {std::make_unique<DocumentStream>(dataset, context_, window, prepare.num_threads, exchange_.get()),
         names.back(), dataset.type == "pretrain"});
  }
}

std::vector<std::string> StreamLoader::datasets() const {
  std::vector<std::string> names;
  for (const Source& source : sources_) names.push_back(has_several() ? source.name : "");
  return names;
}

Cursor StreamLoader::cursor() const {
  Cursor cursor = {0, sample_};
  for (const Source& source : sources_) cursor.streams.push_back(source.documents->place());
  return cursor;
}

void StreamLoader::seek(const Cursor& cursor, bool takes_other_data) {
  const bool fits = cursor.epoch == 0 && cursor.sample >= 0 && cursor.streams.size() == sources_.size();
  try {
    if (!fits) {
      throw Error(ErrorKind::Checkpoint, "CURSOR", "the data position is not one of these datasets")
          .got(std::to_string(cursor.streams.size()) + " streamed datasets")
          .need(std::to_string(sources_.size()))
          .hint("the datasets differ from the run that saved the position");
    }
    for (size_t i = 0; i < sources_.size(); ++i) sources_[i].documents->seek(cursor.streams[i]);
  } catch (const Error& error) {
    if (!takes_other_data || error.kind() != ErrorKind::Checkpoint) throw;
    log::warn("the streamed datasets begin anew: " + std::string(error.what()));
    for (Source& source : sources_) source.documents->seek({});
  }
  sample_ = std::max<int64_t>(cursor.sample, 0);
}

StreamLoader::Sequence StreamLoader::make_sequence(int64_t sample) {
  Sequence sequence;
  const size_t drawn = mix_.dataset_of(sample);
  sequence.dataset = static_cast<int64_t>(drawn);
  Source& source = sources_[drawn];
  const bool keeps_apart = !source.is_cut || (options_.packing && config_.pretrain_multipack_attn);
  const auto length = static_cast<size_t>(options_.sequence_len);
  while (sequence.input_ids.size() < length) {
    const RowRest rest = source.documents->peek();
    const size_t room = length - sequence.input_ids.size();
    const bool is_first = sequence.input_ids.empty();
    if (!source.is_cut && !is_first && (!options_.packing || rest.input_ids.size() > room)) break;
    const size_t count = source.is_cut ? std::min(room, rest.input_ids.size()) : rest.input_ids.size();
    if (is_first || keeps_apart) sequence.starts.push_back(std::ssize(sequence.input_ids));
    const auto append = [&](std::vector<int32_t>& to, std::span<const int32_t> from) {
      to.insert(to.end(), from.begin(), from.begin() + static_cast<std::ptrdiff_t>(count));
    };
    append(sequence.input_ids, rest.input_ids);
    append(sequence.labels, rest.labels);
    source.documents->take(count);
  }
  return sequence;
}

void StreamLoader::append(const Sequence& sequence, MicroBatch& batch) const {
  const int64_t base = std::ssize(batch.input_ids);
  const auto size = static_cast<int64_t>(sequence.input_ids.size());
  batch.input_ids.insert(batch.input_ids.end(), sequence.input_ids.begin(), sequence.input_ids.end());
  for (size_t d = 0; d < sequence.starts.size(); ++d) {
    const int64_t begin = sequence.starts[d];
    const int64_t end = d + 1 < sequence.starts.size() ? sequence.starts[d + 1] : size;
    for (int64_t i = begin; i < end; ++i) {
      batch.labels.push_back(i + 1 < end ? sequence.labels[static_cast<size_t>(i) + 1] : kIgnoreLabel);
      batch.position_ids.push_back(i - begin);
    }
    batch.document_starts.push_back(base + end);
  }
  batch.label_tokens = std::ssize(batch.labels) - std::ranges::count(batch.labels, kIgnoreLabel);
  if (has_several()) batch.datasets.resize(batch.input_ids.size(), sequence.dataset);
}

Step StreamLoader::next_step() {
  Step step;
  step.samples = samples_per_step();
  if (has_several()) step.dataset_label_tokens.assign(sources_.size(), 0);
  for (int64_t cell = 0; cell < options_.accumulation * options_.dp_size; ++cell) {
    MicroBatch batch;
    batch.document_starts.push_back(0);
    for (int64_t i = 0; i < options_.micro_batch_size; ++i, ++sample_) {
      const int64_t labels_before = batch.label_tokens;
      const Sequence sequence = make_sequence(sample_);
      append(sequence, batch);
      if (has_several())
        step.dataset_label_tokens[static_cast<size_t>(sequence.dataset)] +=
            batch.label_tokens - labels_before;
    }
    step.tokens += std::ssize(batch.input_ids);
    step.label_tokens += batch.label_tokens;
    for (size_t d = 1; d < batch.document_starts.size(); ++d) {
      const int64_t length = batch.document_starts[d] - batch.document_starts[d - 1];
      step.token_pairs += length * length;
    }
    if (cell % options_.dp_size == options_.dp_rank) step.micro_batches.push_back(std::move(batch));
  }
  step.next = cursor();
  int64_t fewest = step.next.streams.front().pass;
  for (const StreamPlace& place : step.next.streams) fewest = std::min(fewest, place.pass);
  step.epochs_done = static_cast<double>(fewest);
  return step;
}

PreparedData StreamLoader::sample(int64_t num_sequences) {
  std::vector<std::vector<Sequence>> of_sources(sources_.size());
  for (int64_t i = 0; i < num_sequences; ++i) {
    Sequence sequence = make_sequence(sample_++);
    of_sources[static_cast<size_t>(sequence.dataset)].push_back(std::move(sequence));
  }
  PreparedData data;
  const auto store = std::make_shared<RowStore>();
  for (size_t i = 0; i < sources_.size(); ++i) {
    store->begin_dataset(sources_[i].name);
    for (const Sequence& sequence : of_sources[i]) {
      data.train.rows.push_back(store->size());
      store->append(sequence.input_ids, sequence.labels);
    }
    data.train_stats.push_back(sources_[i].documents->stats());
  }
  data.train.store = data.eval.store = store;
  return data;
}

int64_t StreamLoader::records_read() const {
  int64_t records = 0;
  for (const Source& source : sources_) records += source.documents->records_read();
  return records;
}

int64_t StreamLoader::records_tokenized() const {
  int64_t records = 0;
  for (const Source& source : sources_) records += source.documents->records_tokenized();
  return records;
}

std::string StreamLoader::fingerprint() const {
  config::Recipe shaping;
  static_cast<config::DataConfig&>(shaping) = config_;
  shaping.test_datasets.clear();
  shaping.eval_sequence_len = 0;
  shaping.dataset_prepared_path.clear();
  shaping.max_bad_lines = 0;
  for (config::DatasetConfig& dataset : shaping.datasets) {
    dataset.path = "files";
    dataset.data_files.clear();
    dataset.name.clear();
    dataset.revision.clear();
  }
  ContentHash hash;
  hash.add(std::to_string(kVersion) + ' ' + program_version());
  hash.add(config::dump_recipe(shaping));
  hash.add(std::to_string(options_.seed) + ' ' + std::to_string(options_.packing));
  hash.add(tokenizer_fingerprint_);
  if (chat_template_) hash.add(chat_template_->source());
  for (const Source& source : sources_) {
    const auto& files = source.documents->files();
    for (size_t i = 0; i < files.size(); ++i) {
      hash.add(std::filesystem::path(files[i].path).filename().string());
      hash.add(std::to_string(static_cast<int>(files[i].format)) + ' ' + source.documents->marks()[i].hash());
    }
  }
  return hash.text();
}

}  // namespace tessera::data
