// The verb `tessera classify`.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>

#include <ATen/ATen.h>
#include <CLI/CLI.hpp>
#include <c10/core/InferenceMode.h>
#include <nlohmann/json.hpp>

#include "tessera/cli/compute_options.h"
#include "tessera/cli/verbs.h"
#include "tessera/core/error.h"
#include "tessera/data/prompts/classification.h"
#include "tessera/data/prompts/fields.h"
#include "tessera/data/prompts/token_classification.h"
#include "tessera/data/readers/dataset_files.h"
#include "tessera/data/readers/parse_record.h"
#include "tessera/data/readers/record_batches.h"
#include "tessera/device/host_memory.h"
#include "tessera/generation/load_for_inference.h"
#include "tessera/io/log_file.h"
#include "tessera/io/output_file.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string model, adapter, prompts_file, output_file, field = "text", field_text_pair;
  std::vector<std::string> texts;
  ComputeOptions compute;
  int64_t batch_size = 32, max_length = 0, top_k = 5;
  bool overwrite = false;
};

std::vector<Json> read_records(const Options& options) {
  std::vector<Json> records;
  for (const std::string& text : options.texts) records.push_back({{options.field, text}});
  if (!options.prompts_file.empty()) {
    config::DatasetConfig dataset;
    dataset.path = options.prompts_file;
    const std::vector<data::DatasetFile> files = data::find_dataset_files(dataset, "");
    constexpr int64_t kBatchBytes = int64_t{16} << 20;
    data::RecordBatches batches(files, {0, std::numeric_limits<int64_t>::max()}, false, kBatchBytes);
    for (data::RecordBatch batch; batches.next(batch);) {
      for (const data::RawRecord& record : batch.records)
        records.push_back(data::parse_record(record, batch.file->path));
    }
  }
  if (records.empty()) {
    throw Error(ErrorKind::Config, "PROMPT", "there is no text")
        .need("texts, or --prompts FILE with records of texts");
  }
  return records;
}

// Lays rows end to end.
nn::TokenBatch batch_of(const std::vector<data::Row>& rows) {
  std::vector<int64_t> ids, types, positions;
  nn::TokenBatch batch;
  batch.document_starts = {0};
  for (const data::Row& row : rows) {
    ids.insert(ids.end(), row.input_ids.begin(), row.input_ids.end());
    types.insert(types.end(), row.type_ids.begin(), row.type_ids.end());
    types.resize(ids.size(), 0);
    for (size_t i = 0; i < row.input_ids.size(); ++i) positions.push_back(static_cast<int64_t>(i));
    batch.document_starts.push_back(std::ssize(ids));
  }
  const auto tensor = [](const std::vector<int64_t>& values) {
    return at::tensor(values, on_host(at::kLong));
  };
  batch.input_ids = tensor(ids);
  batch.type_ids = tensor(types);
  batch.position_ids = tensor(positions);
  return batch;
}

// Adds what the model tells of a record's text: "predicted" (a class, a list of labels, or a number) and
// "scores" by label, which one number does not need.
void add_prediction(const Classification& classes, const at::Tensor& logits, Json& out) {
  const bool is_single = classes.problem == ProblemType::SingleLabel,
             is_number = classes.problem == ProblemType::Regression;
  const at::Tensor scores = is_number ? logits : is_single ? logits.softmax(0) : logits.sigmoid();
  const auto values = host_span<const double>(scores);
  Json named = Json::object(), chosen = Json::array();
  for (size_t i = 0; i < values.size(); ++i) {
    named[classes.labels[i]] = values[i];
    if (!is_single && values[i] > 0.5) chosen.push_back(classes.labels[i]);
  }
  if (is_single) out["predicted"] = classes.labels[static_cast<size_t>(logits.argmax().item<int64_t>())];
  if (!is_single && !is_number) out["predicted"] = chosen;
  if (is_number && values.size() == 1) {
    out["predicted"] = values[0];
  } else {
    out["scores"] = named;
  }
}

// Adds what the model tells of the words of a record: "predicted", a label for each, and their probabilities,
// "scores". `logits`: [words with a token, labels]; a word without a token has null.
void add_tags(const Classification& classes, const at::Tensor& logits,
              const std::vector<int64_t>& first_tokens, Json& out) {
  const auto [scores, labels] = logits.softmax(1).max(1);
  Json named = Json::array(), probabilities = Json::array();
  int64_t row = 0;
  for (const int64_t token : first_tokens) {
    if (token < 0) {
      named.push_back(nullptr);
      probabilities.push_back(nullptr);
      continue;
    }
    named.push_back(classes.labels[static_cast<size_t>(labels[row].item<int64_t>())]);
    probabilities.push_back(scores[row++].item<double>());
  }
  out["predicted"] = named;
  out["scores"] = probabilities;
}

// Adds what the model tells of the mask tokens of a record, "masks": for each, the `top_k` likeliest tokens,
// as the fill-mask pipeline of Transformers has them. `logits`: [masks, vocabulary].
void add_fills(const text::Tokenizer& tokenizer, const at::Tensor& logits, const data::Row& row,
               const std::vector<int64_t>& masks, int64_t top_k, Json& out) {
  const auto [scores, tokens] = logits.softmax(1).topk(std::min(top_k, logits.size(1)), 1);
  Json all = Json::array();
  for (int64_t mask = 0; mask < std::ssize(masks); ++mask) {
    Json fills = Json::array();
    for (int64_t i = 0; i < scores.size(1); ++i) {
      std::vector<int32_t> ids = row.input_ids;
      const auto token = static_cast<int32_t>(tokens[mask][i].item<int64_t>());
      ids[static_cast<size_t>(masks[static_cast<size_t>(mask)])] = token;
      fills.push_back({{"score", scores[mask][i].item<double>()},
                       {"token", token},
                       {"token_str", tokenizer.decode(std::vector<int32_t>{token})},
                       {"sequence", tokenizer.decode(ids, /*skip_special_tokens=*/masks.size() == 1)}});
    }
    all.push_back(fills);
  }
  out["masks"] = all;
}

// Returns the words of a text, which white space separates.
std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

class Classifier {
 public:
  Classifier(const Options& options, const at::TensorOptions& compute)
      : options_(options),
        source_(options.model, options.adapter),
        model_(source_.load(compute, parallel::DeviceMesh(comm::Communicator::single(), {}))) {
    const models::ModelConfig& config = model_->config();
    if (options.max_length > 0) most_tokens_ = options.max_length;
    if (config.is_masked_lm && source_.tokenizer().mask_id()) return;
    if (!config.classification) {
      throw Error(ErrorKind::Model, "TASK", "the model is no classifier")
          .in(config.source_file)
          .need(
              "a *ForSequenceClassification or *ForTokenClassification, or a *ForMaskedLM with a mask token")
          .hint("tessera generate asks language models");
    }
    rows_ = {.classes = *config.classification,
             .reads_first = config.is_encoder,
             .pad_token_id = config.pad_token_id};
    if (!most_tokens_ && config.document_bound) most_tokens_ = config.document_bound->tokens;
    if (rows_.classes.of_tokens()) words_.emplace(source_.tokenizer());
  }

  // Adds the predictions to the records.
  void classify(std::span<Json> records) const {
    std::vector<data::Row> rows;
    std::vector<std::vector<int64_t>> positions;  // of each record, those that the classifier reads
    std::vector<int64_t> read;                    // the same in the line of all rows
    int64_t start = 0;
    for (Json& record : records) {
      if (model_->config().is_masked_lm) {
        rows.push_back(masked_row_of(record));
        positions.push_back(masks_of(rows.back()));
      } else if (words_) {
        data::WordRow made = word_row_of(record);
        rows.push_back(std::move(made.row));
        positions.push_back(std::move(made.first_tokens));
      } else {
        rows.push_back(row_of(record));
        positions.push_back(
            {static_cast<int64_t>(data::ClassificationPrompt::read_position(rows.back(), rows_))});
      }
      if (rows.back().input_ids.empty()) throw Error(ErrorKind::Data, "PROMPT", "a text without a token");
      for (const int64_t position : positions.back()) {
        if (position >= 0) read.push_back(start + position);
      }
      start += std::ssize(rows.back().input_ids);
    }
    const at::Tensor logits = model_->logits(batch_of(rows))
                                  .index_select(0, at::tensor(read, on_host(at::kLong)).to(model_->device()))
                                  .to(at::TensorOptions(kHost).dtype(at::kDouble));
    int64_t first = 0;
    for (size_t i = 0; i < records.size(); ++i) {
      const auto count = std::ranges::count_if(positions[i], [](int64_t position) { return position >= 0; });
      const at::Tensor own = logits.narrow(0, first, count);
      if (model_->config().is_masked_lm) {
        add_fills(source_.tokenizer(), own, rows[i], positions[i], options_.top_k, records[i]);
      } else if (words_) {
        add_tags(rows_.classes, own, positions[i], records[i]);
      } else {
        add_prediction(rows_.classes, own[0].contiguous(), records[i]);
      }
      first += count;
    }
  }

 private:
  data::Row masked_row_of(const Json& record) const {
    data::Row row;
    row.input_ids = source_.tokenizer().encode(data::required_text(record, options_.field),
                                               {.parse_special = true, .add_special_tokens = true});
    return row;
  }

  std::vector<int64_t> masks_of(const data::Row& row) const {
    std::vector<int64_t> masks;
    const int32_t mask = *source_.tokenizer().mask_id();
    for (size_t i = 0; i < row.input_ids.size(); ++i) {
      if (row.input_ids[i] == mask) masks.push_back(static_cast<int64_t>(i));
    }
    if (!masks.empty()) return masks;
    throw Error(ErrorKind::Data, "PROMPT", "a text without a mask token")
        .need("the token " + source_.tokenizer().id_to_token(mask) + " where the model is to tell one");
  }

  // Adds the words of a text to its record.
  data::WordRow word_row_of(Json& record) const {
    config::DatasetConfig dataset;
    dataset.field = options_.field;
    const std::string column = data::find_word_columns(record, dataset).words;
    if (record.contains(column) && record[column].is_array())
      return words_->encode(data::read_words(record, column), most_tokens_);
    const std::vector<std::string> words = words_of(data::required_text(record, options_.field));
    record["tokens"] = words;
    return words_->encode(words, most_tokens_);
  }

  data::Row row_of(const Json& record) const {
    config::DatasetConfig dataset;
    dataset.field = options_.field;
    dataset.field_text_pair = options_.field_text_pair;
    const data::TextColumns columns = data::find_text_columns(record, dataset);
    std::optional<std::string_view> second;
    if (!columns.second.empty()) second = data::required_text(record, columns.second);
    return data::ClassificationPrompt::make_row(
        source_.tokenizer(), data::required_text(record, columns.first), second, most_tokens_);
  }

  const Options& options_;
  const generation::ModelSource source_;
  const std::shared_ptr<models::CausalLM> model_;
  data::ClassificationRows rows_;
  std::optional<int64_t> most_tokens_;
  std::optional<data::WordEncoder> words_;  // set for a classifier of tokens
};

int run_classify(const Options& options) {
  const at::TensorOptions compute = options.compute.resolved();
  if (!options.output_file.empty()) {
    io::check_output_file({.path = options.output_file,
                           .named_by = "--output",
                           .inputs = {{"the texts", options.prompts_file}, {"the model", options.model}},
                           .overwrites = options.overwrite});
  }
  std::vector<Json> records = read_records(options);
  const c10::InferenceMode inference;
  const Classifier classifier(options, compute);
  std::optional<io::LogFile> file;
  if (!options.output_file.empty()) file.emplace(options.output_file);
  const auto batch = static_cast<size_t>(options.batch_size);
  for (size_t begin = 0; begin < records.size(); begin += batch) {
    const std::span<Json> some(records.data() + begin, std::min(batch, records.size() - begin));
    classifier.classify(some);
    for (const Json& record : some) {
      const std::string line = record.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
      if (file) {
        file->append(line);
      } else {
        std::fputs(line.c_str(), stdout);
      }
    }
  }
  return 0;
}

}  // namespace

void add_classify(CLI::App& app, CommandLine& line) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("classify",
                                      "Find the labels of texts, or of their words, with a classifier,\nor "
                                      "the tokens behind masks with a masked language model");
  line.add_model(*verb, "model", options->model, "Folder of the model, or of its adapter")->required();
  verb->add_option("texts", options->texts, "Texts to classify");
  line.add_model(*verb, "--adapter", options->adapter, "Folder of an adapter to put on the model",
                 Takes::Adapter);
  verb->add_option(
          "--prompts", options->prompts_file,
          "File of records with a text, with two, or with words, as the datasets of a recipe have them")
      ->check(CLI::ExistingPath);
  verb->add_option("--field", options->field, "Column of the text");
  verb->add_option("--field-text-pair", options->field_text_pair, "Column of the second text");
  verb->add_option("--output", options->output_file,
                   "Write the records to this new file of JSON lines instead of printing them");
  verb->add_flag("--overwrite", options->overwrite, kOverwriteHelp);
  verb->add_option("--batch-size", options->batch_size, "Texts to process at once")
      ->check(CLI::Range(1, 4096));
  verb->add_option("--max-length", options->max_length,
                   "Cut texts to this many tokens; 0 = as the model takes")
      ->check(CLI::Range(0, 1 << 24));
  verb->add_option("--top-k", options->top_k, "Tokens to tell for each mask of a masked language model")
      ->check(CLI::Range(1, 1 << 24));
  add_compute_options(*verb, options->compute);
  line.set_action(*verb, [options] { return run_classify(*options); });
}

}  // namespace tessera::cli
