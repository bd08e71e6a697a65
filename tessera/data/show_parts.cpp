#include "tessera/data/show_parts.h"

#include <algorithm>
#include <cstdio>
#include <unordered_set>

#include "tessera/core/content_hash.h"
#include "tessera/core/terminal_text.h"
#include "tessera/core/utf8.h"
#include "tessera/data/loader.h"

namespace tessera::data {
namespace {

std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%.1f %%", 100.0 * share);
  return text;
}

std::string share_of(int64_t part, int64_t whole) {
  return std::to_string(part) +
         (whole > 0 ? " (" + percent(static_cast<double>(part) / static_cast<double>(whole)) + ")" : "");
}

// Returns warnings about rows that were left out or cut, and those of data_warnings() about the others.
std::vector<std::string> warnings_of(const DatasetStats& stats, const ShowOptions& options) {
  std::vector<std::string> warnings;
  const auto rows = [](int64_t count) { return std::to_string(count) + (count == 1 ? " row " : " rows "); };
  const std::string limit = "longer than sequence_len (" + std::to_string(options.train.sequence_len) + ")";
  if (stats.dropped_long > 0) {
    warnings.push_back(rows(stats.dropped_long) + "dropped: " + limit + "; the longest one has " +
                       std::to_string(stats.longest) +
                       " tokens (excess_length_strategy: truncate keeps the beginning of such rows)");
  }
  if (stats.truncated > 0)
    warnings.push_back(rows(stats.truncated) + "truncated, by " + std::to_string(stats.cut_tokens) +
                       " tokens: " + limit);
  if (stats.dropped_unlabelled > 0) {
    warnings.push_back(rows(stats.dropped_unlabelled) +
                       "dropped: no label is left (no turn of roles_to_train, an empty answer, or an answer "
                       "that was cut off)");
  }
  const std::vector<std::string> more = data_warnings(stats);
  warnings.insert(warnings.end(), more.begin(), more.end());
  return warnings;
}

ShownTable describe_stats(const DatasetStats& stats, const ShowOptions& options) {
  ShownTable table = {stats.path + (stats.type.empty() ? "" : " (" + stats.type + ")"),
                      {{"records", std::to_string(stats.records)}, {"rows", std::to_string(stats.rows)}},
                      warnings_of(stats, options)};
  const auto add = [&](const char* name, int64_t count) {
    if (count > 0) table.lines.emplace_back(name, std::to_string(count));
  };
  add("blank lines", stats.blank_lines);
  add("bad records, skipped", stats.bad_records);
  add("rows dropped: too long", stats.dropped_long);
  add("rows dropped: too short", stats.dropped_short);
  add("rows dropped: no labels", stats.dropped_unlabelled);
  if (stats.truncated > 0) {
    table.lines.emplace_back("rows truncated", std::to_string(stats.truncated) + " (by " +
                                                   std::to_string(stats.cut_tokens) + " tokens)");
  }
  table.lines.emplace_back("longest row", std::to_string(stats.longest) + " tokens");
  table.lines.emplace_back("tokens", std::to_string(stats.tokens));
  table.lines.emplace_back("trained tokens", share_of(stats.label_tokens, stats.tokens));
  table.lines.emplace_back("trained end tokens", std::to_string(stats.end_labels));
  return table;
}

ShownTable describe_rows(const char* name, const RowSet& rows, const LoaderOptions& options,
                         bool has_epochs) {
  int64_t tokens = 0, labels = 0;
  for (int64_t i = 0; i < rows.size(); ++i) {
    tokens += rows.length(i);
    labels += rows.label_count(i);
  }
  ShownTable table = {name,
                      {{"rows", std::to_string(rows.size())},
                       {"tokens", std::to_string(tokens)},
                       {"trained tokens", share_of(labels, tokens)}},
                      {}};
  if (rows.size() == 0 || !has_epochs) return table;
  const Loader loader(rows, options);
  if (options.packing) {
    table.lines.emplace_back("packed sequences", std::to_string(loader.num_samples()) + " of " +
                                                     std::to_string(options.sequence_len));
    table.lines.emplace_back("packing efficiency", percent(loader.packing_efficiency()));
  }
  table.lines.emplace_back("steps per epoch", std::to_string(loader.steps_per_epoch()) + " on one rank");
  return table;
}

uint64_t hash_of(const RowSet& rows, int64_t place) {
  const std::span<const int32_t> tokens = rows.store->tokens(rows.rows[static_cast<size_t>(place)]);
  ContentHash hash;
  hash.add({reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()});
  return hash.value();
}

}  // namespace

std::vector<ShownTable> describe_data(const PreparedData& data, const ShowOptions& options) {
  std::vector<ShownTable> tables;
  for (const DatasetStats& stats : data.train_stats) tables.push_back(describe_stats(stats, options));
  for (const DatasetStats& stats : data.eval_stats) tables.push_back(describe_stats(stats, options));
  tables.push_back(describe_rows("training", data.train, options.train, options.has_epochs));
  if (data.eval.size() == 0) return tables;
  tables.push_back(describe_rows("evaluation", data.eval, options.eval, true));
  if (const int64_t shared = count_shared_rows(data); shared > 0) {
    tables.back().warnings.push_back(std::to_string(shared) + " of " + std::to_string(data.eval.size()) +
                                     " rows are also training rows: their loss says nothing about new text");
  }
  return tables;
}

int64_t count_shared_rows(const PreparedData& data) {
  if (data.eval.size() == 0) return 0;
  std::unordered_set<uint64_t> trained;
  for (int64_t i = 0; i < data.train.size(); ++i) trained.insert(hash_of(data.train, i));
  int64_t shared = 0;
  for (int64_t i = 0; i < data.eval.size(); ++i) shared += trained.contains(hash_of(data.eval, i)) ? 1 : 0;
  return shared;
}

std::string printable(std::string_view bytes, bool escape_broken) {
  std::string out;
  while (!bytes.empty()) {
    const size_t valid = valid_utf8_prefix(bytes);
    for (const char c : terminal_text(bytes.substr(0, valid), LineBreaks::Keep)) {
      out += c == '\n' ? "\u21b5\n" : c == '\t' ? "\\t" : std::string(1, c);
    }
    if (valid == bytes.size()) break;
    out += escape_broken ? terminal_text(bytes.substr(valid, 1)) : "\ufffd";
    bytes.remove_prefix(valid + 1);
  }
  return out;
}

}  // namespace tessera::data
