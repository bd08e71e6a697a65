#include "tessera/data/stream/stream_loader.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "tessera/config/load_recipe.h"
#include "tessera/core/content_hash.h"
#include "tessera/core/error.h"
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
                           std::shared_ptr<StreamExchange> exchange)
    : MixedLoader(config.datasets, std::vector<bool>(config.datasets.size(), true), options,
                  "streamed datasets"),
      config_([&] {
        config::DataConfig resolved = config;
        for (config::DatasetConfig& dataset : resolved.datasets)
          dataset = resolve_dataset_info(dataset, config.source_folder);
        return resolved;
      }()),
      chat_template_(std::move(chat_template)),
      context_{config_, tokenizer, chat_template_.get(), prepare.vocab_size,
               prepare.now.value_or(text::local_clock())},
      tokenizer_fingerprint_(prepare.tokenizer_fingerprint),
      exchange_(exchange != nullptr && exchange->size() > 1 ? std::move(exchange) : nullptr) {
  for (const config::DatasetConfig& dataset : config_.datasets) {
    WindowOptions window;
    window.shuffles = options.shuffle;
    window.seed = options.seed;
    window.dataset = std::ssize(sources_);
    window.most_documents = config_.streaming_multipack_buffer_size;
    window.skips_bad = config_.on_bad_line == "skip";
    names_.push_back(unique_name(short_name(dataset), names_));
    sources_.push_back(
        {std::make_unique<DocumentStream>(dataset, context_, window, prepare.num_threads, exchange_.get()),
         dataset.type == "pretrain"});
  }
}

StreamLoader::Sequence StreamLoader::make_sequence(Source& source) const {
  Sequence sequence;
  // Whole rows are apart: attention stays inside each of them. The parts of a sequence cut from pretrain
  // documents are apart only if the recipe asks for that.
  const bool keeps_apart = !source.is_cut || (options_.packing && config_.pretrain_multipack_attn);
  const auto length = static_cast<size_t>(options_.sequence_len);
  while (sequence.input_ids.size() < length) {
    // This is collective with an exchange: every rank makes every sequence, in the same order.
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

SequenceCounts StreamLoader::take(size_t source, MicroBatch* batch) {
  const Sequence sequence = make_sequence(sources_[source]);
  SequenceCounts counts = {.tokens = std::ssize(sequence.input_ids)};
  for (size_t d = 0; d < sequence.starts.size(); ++d) {
    const int64_t begin = sequence.starts[d];
    const int64_t end = d + 1 < sequence.starts.size() ? sequence.starts[d + 1] : counts.tokens;
    const auto first = sequence.labels.begin() + begin, last = sequence.labels.begin() + end;
    counts.label_tokens += count_trained({first, last});
    counts.token_pairs += (end - begin) * (end - begin);
    if (batch == nullptr) continue;
    // Labels are shifted within each part, so the last position of a part predicts nothing.
    batch->labels.insert(batch->labels.end(), first + 1, last);
    batch->labels.push_back(kIgnoreLabel);
    for (int64_t i = 0; i < end - begin; ++i) batch->position_ids.push_back(i);
    batch->document_starts.push_back(std::ssize(batch->labels));
  }
  if (batch != nullptr) {
    batch->input_ids.insert(batch->input_ids.end(), sequence.input_ids.begin(), sequence.input_ids.end());
  }
  return counts;
}

PreparedData StreamLoader::sample(int64_t num_sequences) {
  std::vector<std::vector<Sequence>> of_sources(sources_.size());
  std::vector<std::vector<size_t>> places(sources_.size());  // by source: when its sequences were drawn
  for (int64_t i = 0; i < num_sequences; ++i) {
    const size_t source = draw();
    of_sources[source].push_back(make_sequence(sources_[source]));
    places[source].push_back(static_cast<size_t>(i));
  }
  PreparedData data;
  data.train.rows.resize(static_cast<size_t>(num_sequences));
  const auto store = std::make_shared<RowStore>();
  for (size_t i = 0; i < sources_.size(); ++i) {
    store->begin_dataset(names_[i]);
    for (size_t s = 0; s < of_sources[i].size(); ++s) {
      data.train.rows[places[i][s]] = store->size();
      store->append(of_sources[i][s].input_ids, of_sources[i][s].labels);
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
  // Keys that do not shape sequences are set to a fixed value. Files are told apart by their names and marks
  // below, so they may lie elsewhere.
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
  if (chat_template_) hash.add(chat_template_->all_sources());
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
