#include "tessera/data/show.h"

#include <algorithm>
#include <cstdio>
#include <ostream>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/core/strings.h"
#include "tessera/data/loader.h"

namespace tessera::data {
namespace {

constexpr std::string_view kTrained = "\x1b[32m", kMasked = "\x1b[2m", kPlain = "\x1b[0m";
constexpr std::string_view kOpen = "\u27e6", kClose = "\u27e7", kReturn = "\u21b5\n", kReplacement = "\ufffd";

std::string printable(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const int64_t bad = find_invalid_utf8(bytes);
    for (const char c : bytes.substr(0, bad < 0 ? bytes.size() : static_cast<size_t>(bad))) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '\n') {
        out += kReturn;
      } else if (byte < 0x20 || byte == 0x7F) {
        char text[8];
        std::snprintf(text, sizeof text, "\\x%02x", byte);
        out += c == '\t' ? "\\t" : text;
      } else {
        out += c;
      }
    }
    if (bad < 0) break;
    out += kReplacement;
    bytes.remove_prefix(static_cast<size_t>(bad) + 1);
  }
  return out;
}

std::string percent(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%.1f %%", 100.0 * share);
  return text;
}

std::string share_of(int64_t part, int64_t whole) {
  return std::to_string(part) +
         (whole > 0 ? " (" + percent(static_cast<double>(part) / static_cast<double>(whole)) + ")" : "");
}

using Lines = std::vector<std::pair<std::string, std::string>>;

void write_table(std::ostream& out, const Lines& lines) {
  size_t width = 0;
  for (const auto& [name, value] : lines) width = std::max(width, name.size());
  for (const auto& [name, value] : lines)
    out << "  " << name << std::string(width - name.size() + 2, ' ') << value << '\n';
}

void write_stats(std::ostream& out, const DatasetStats& stats) {
  Lines lines = {{"records", std::to_string(stats.records)}, {"rows", std::to_string(stats.rows)}};
  const auto add = [&](const char* name, int64_t count) {
    if (count > 0) lines.emplace_back(name, std::to_string(count));
  };
  add("blank lines", stats.blank_lines);
  add("bad records, skipped", stats.bad_records);
  add("rows dropped: too long", stats.dropped_long);
  add("rows dropped: too short", stats.dropped_short);
  add("rows dropped: no labels", stats.dropped_unlabelled);
  if (stats.truncated > 0) {
    lines.emplace_back("rows truncated", std::to_string(stats.truncated) + " (by " +
                                             std::to_string(stats.cut_tokens) + " tokens)");
  }
  lines.emplace_back("longest row", std::to_string(stats.longest) + " tokens");
  lines.emplace_back("tokens", std::to_string(stats.tokens));
  lines.emplace_back("trained tokens", share_of(stats.label_tokens, stats.tokens));
  lines.emplace_back("trained end tokens", std::to_string(stats.end_labels));
  out << stats.path << (stats.type.empty() ? "" : " (" + stats.type + ")") << '\n';
  write_table(out, lines);
  for (const std::string& warning : data_warnings(stats)) out << "  warning: " << warning << '\n';
}

void write_rows(std::ostream& out, const char* name, const RowSet& rows, const LoaderOptions& options) {
  int64_t tokens = 0, labels = 0;
  for (int64_t i = 0; i < rows.size(); ++i) {
    tokens += rows.length(i);
    labels += rows.label_count(i);
  }
  Lines lines = {{"rows", std::to_string(rows.size())},
                 {"tokens", std::to_string(tokens)},
                 {"trained tokens", share_of(labels, tokens)}};
  if (rows.size() > 0) {
    const Loader loader(rows, options);
    if (options.packing) {
      lines.emplace_back("packed sequences", std::to_string(loader.num_samples()) + " of " +
                                                 std::to_string(options.sequence_len));
      lines.emplace_back("packing efficiency", percent(loader.packing_efficiency()));
    }
    lines.emplace_back("steps an epoch", std::to_string(loader.steps_per_epoch()) + " on one rank");
  }
  out << name << '\n';
  write_table(out, lines);
}

}  // namespace

void show_data(std::ostream& out, const PreparedData& data, const text::Tokenizer& tokenizer,
               const ShowOptions& options) {
  const int64_t num_rows = std::min(options.num_rows, data.train.size());
  for (int64_t i = 0; i < num_rows; ++i) {
    const int64_t labels = data.train.label_count(i);
    out << "row " << i << ": " << data.train.length(i) << " tokens, " << labels << " trained\n"
        << show_row(data.train.store->row(data.train.rows[i]), tokenizer, options) << "\n\n";
  }
  if (num_rows > 0) {
    out << (options.color ? std::string(kTrained) + "trained" + std::string(kPlain) + ", " +
                                std::string(kMasked) + "masked" + std::string(kPlain)
                          : std::string(kOpen) + "trained" + std::string(kClose) + ", masked")
        << "\n\n";
  }
  for (const DatasetStats& stats : data.train_stats) write_stats(out, stats);
  for (const DatasetStats& stats : data.eval_stats) write_stats(out, stats);
  write_rows(out, "training", data.train, options.train);
  if (data.eval.size() > 0) write_rows(out, "evaluation", data.eval, options.eval);
}

std::string show_row(const Row& row, const text::Tokenizer& tokenizer, const ShowOptions& options) {
  std::string out;
  const size_t size = row.input_ids.size();
  // The label of the first token counts for nothing: no position predicts it.
  const auto trained = [&](size_t i) { return i > 0 && row.labels[i] != kIgnoreLabel; };
  for (size_t begin = 0; begin < size;) {
    size_t end = begin;
    std::string bytes, text;
    for (; end < size && trained(end) == trained(begin); ++end) {
      const std::string piece = tokenizer.token_bytes(row.input_ids[end]);
      if (options.tokens) {
        text += (end > begin ? "|" : "") + printable(piece);
      } else {
        bytes += piece;
      }
    }
    text += printable(bytes);
    if (options.color) {
      out += std::string(trained(begin) ? kTrained : kMasked) + text + std::string(kPlain);
    } else {
      out += trained(begin) ? std::string(kOpen) + text + std::string(kClose) : text;
    }
    begin = end;
  }
  return out;
}

}  // namespace tessera::data
