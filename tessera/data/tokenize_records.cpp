#include "tessera/data/tokenize_records.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "tessera/core/run_on_threads.h"
#include "tessera/data/readers/parse_record.h"

namespace tessera::data {

RecordTokenizer::RecordTokenizer(const PromptType& prompt, const config::DatasetConfig& dataset,
                                 const DatasetFile& file, const config::DataConfig& config,
                                 int64_t vocab_size, int64_t num_threads, const ControlTokens* control_tokens)
    : prompt_(prompt),
      dataset_(dataset),
      file_(file),
      config_(config),
      end_tokens_(prompt.end_tokens()),
      vocab_size_(vocab_size),
      num_threads_(num_threads),
      control_tokens_(control_tokens) {}

std::vector<TokenizedRecord> RecordTokenizer::run(const std::vector<RawRecord>& records) const {
  std::vector<TokenizedRecord> results(records.size());
  run_on_threads(records.size(), num_threads_, [&](size_t i) { results[i] = tokenize(records[i]); });
  return results;
}

TokenizedRecord RecordTokenizer::tokenize(const RawRecord& record) const {
  TokenizedRecord out;
  bool placed = false;
  try {
    nlohmann::ordered_json fields;
    if (file_.format == FileFormat::Text) {
      fields[dataset_.field] = record.text;
    } else {
      placed = true;
      fields = parse_record(record, file_.path);
      placed = false;
    }
    std::vector<Row> rows;
    RecordNotes notes;
    const PromptRecord read = {fields, record.begins_document, record.ends_document, &notes};
    prompt_.tokenize(read, rows);
    count_notes(notes, record, out.stats);
    out.stats.own_ends += prompt_.has_own_ends(read) ? 1 : 0;
    for (Row& row : rows) filter(std::move(row), out);
    if (control_tokens_ != nullptr && control_tokens_->are_in_strings(fields)) ++out.stats.control_texts;
  } catch (Error& error) {
    // parse_record() gives its errors a place; all others get that of the record.
    if (!placed) {
      if (record.element >= 0)
        error.within((record.line == 0 ? "row " : "element ") + std::to_string(record.element));
      error.at(file_.path, record.line, record.column);
    }
    out.error = error;
  } catch (const nlohmann::json::exception& error) {
    out.error = Error(ErrorKind::Data, "RECORD", std::string("the record cannot be used: ") + error.what());
    out.error->at(file_.path, record.line, record.column);
  }
  return out;
}

void RecordTokenizer::count_notes(const RecordNotes& notes, const RawRecord& record,
                                  DatasetStats& stats) const {
  for (const std::string& field : notes.unread_fields) stats.note_unread(field, 1);
  if (notes.ends_with_question) ++stats.final_questions;
  if (!notes.merges_border) return;
  ++stats.merged_borders;
  stats.merged_places.push_back(
      file_.path + ":" +
      (record.line > 0 ? std::to_string(record.line) : "row " + std::to_string(record.element)));
}

void RecordTokenizer::filter(Row&& row, TokenizedRecord& out) const {
  auto length = static_cast<int64_t>(row.input_ids.size());
  DatasetStats& stats = out.stats;
  stats.longest = std::max(stats.longest, length);
  int64_t cut = 0;
  if (length > config_.sequence_len) {
    switch (config_.excess_length_strategy) {
      case config::ExcessLength::Drop: ++stats.dropped_long; return;
      case config::ExcessLength::Raise:
        out.must_raise = true;
        throw Error(ErrorKind::Data, "ROW-TOO-LONG", "the row is longer than sequence_len")
            .got(std::to_string(length) + " tokens")
            .need("at most " + std::to_string(config_.sequence_len))
            .hint("excess_length_strategy: drop or truncate");
      case config::ExcessLength::Truncate:
        cut = length - config_.sequence_len;
        length = config_.sequence_len;
        row.input_ids.resize(static_cast<size_t>(length));
        row.labels.resize(static_cast<size_t>(length));
        if (!row.type_ids.empty()) row.type_ids.resize(static_cast<size_t>(length));
        break;
    }
  }
  if (length < config_.min_sample_len || length == 0) {
    ++stats.dropped_short;
    return;
  }
  const int64_t label_tokens = count_trained(row);
  if (label_tokens == 0) {
    ++stats.dropped_unlabelled;
    return;
  }
  check_ids(row);
  if (cut > 0) {
    ++stats.truncated;
    stats.cut_tokens += cut;
  }
  ++stats.rows;
  stats.tokens += length;
  stats.label_tokens += label_tokens;
  count_ends(row, stats);
  out.rows.push_back(std::move(row));
}

void RecordTokenizer::count_ends(const Row& row, DatasetStats& stats) const {
  const auto is_end = [&](int32_t id) {
    return std::find(end_tokens_.begin(), end_tokens_.end(), id) != end_tokens_.end();
  };
  bool is_untrained = false, is_repeated = false;
  for (size_t i = 1; i < row.input_ids.size(); ++i) {
    if (!is_end(row.input_ids[i])) continue;
    const bool is_trained = row.labels[i] != kIgnoreLabel;
    stats.end_labels += is_trained ? 1 : 0;
    const bool ends_turn = row.labels[i - 1] != kIgnoreLabel && !is_end(row.input_ids[i - 1]);
    is_untrained = is_untrained || (!is_trained && ends_turn);
    is_repeated = is_repeated || row.input_ids[i] == row.input_ids[i - 1];
  }
  stats.untrained_ends += is_untrained ? 1 : 0;
  stats.repeated_ends += is_repeated ? 1 : 0;
}

void RecordTokenizer::check_ids(const Row& row) const {
  if (vocab_size_ <= 0) return;
  const auto found = std::ranges::find_if(row.input_ids, [&](int32_t id) { return id >= vocab_size_; });
  if (found == row.input_ids.end()) return;
  throw Error(ErrorKind::Data, "TOKEN-ID",
              "the tokenizer produces a token for which the model has no embedding, at position " +
                  std::to_string(found - row.input_ids.begin()) + " of the row")
      .got(std::to_string(*found))
      .need("an id below the model's vocab_size of " + std::to_string(vocab_size_))
      .hint("the tokenizer belongs to another model, or has added tokens that the model lacks");
}

}  // namespace tessera::data
