#include "tessera/data/show.h"

#include <algorithm>
#include <cstdio>
#include <ostream>
#include <string_view>

#include "tessera/core/terminal_text.h"
#include "tessera/data/show_parts.h"

namespace tessera::data {
namespace {

constexpr std::string_view kTrained = "\x1b[32m", kMasked = "\x1b[2m", kWarning = "\x1b[33m",
                           kPlain = "\x1b[0m";
constexpr std::string_view kOpen = "\u27e6", kClose = "\u27e7";

void write_table(std::ostream& out, const ShownTable& table, bool color) {
  out << table.title << '\n';
  size_t width = 0;
  for (const auto& [name, value] : table.lines) width = std::max(width, terminal_text(name).size());
  for (const auto& [name, value] : table.lines) {
    const std::string shown = terminal_text(name);
    out << "  " << shown << std::string(width - shown.size() + 2, ' ') << terminal_text(value) << '\n';
  }
  for (const std::string& warning : table.warnings) {
    out << "  " << (color ? kWarning : "") << "warning:" << (color ? kPlain : "") << ' '
        << terminal_text(warning) << '\n';
  }
}

// Writes a line for each token: its place in the document, its id, whether it is trained, and its text.
void write_tokens(std::ostream& out, const Row& row, const text::Tokenizer& tokenizer, bool color) {
  for (size_t i = 0; i < row.input_ids.size(); ++i) {
    const bool trained = is_trained(row, i);
    char place[64];
    std::snprintf(place, sizeof place, "%7zu %8d  %-8s", i, row.input_ids[i], trained ? "trained" : "masked");
    std::string text = printable(tokenizer.token_bytes(row.input_ids[i]), true);
    std::erase(text, '\n');
    out << (color ? (trained ? kTrained : kMasked) : "") << place << '\'' << text << '\''
        << (color ? kPlain : "") << '\n';
  }
}

}  // namespace

void show_data(std::ostream& out, const PreparedData& data, const text::Tokenizer& tokenizer,
               const ShowOptions& options) {
  const RowSet& rows = options.drawn.rows.size() > 0 ? options.drawn.rows : data.train;
  const int64_t num_rows = std::min(options.num_rows, rows.size());
  for (int64_t i = 0; i < num_rows; ++i) {
    const int64_t row = rows.rows[static_cast<size_t>(i)];
    out << "row " << i << ": " << terminal_text(rows.store->dataset_name(rows.store->dataset(row))) << ", "
        << rows.length(i) << " tokens, " << rows.label_count(i) << " trained";
    for (const float target : rows.store->row(row).targets) out << ", target " << target;
    out << '\n';
    if (options.each_token) {
      write_tokens(out, rows.store->row(row), tokenizer, options.color);
      out << '\n';
    } else {
      out << show_row(rows.store->row(row), tokenizer, options) << "\n\n";
    }
  }
  if (num_rows > 0 && !options.each_token) {
    out << (options.color ? std::string(kTrained) + "trained" + std::string(kPlain) + ", " +
                                std::string(kMasked) + "masked" + std::string(kPlain)
                          : std::string(kOpen) + "trained" + std::string(kClose) + ", masked")
        << "\n\n";
  }
  for (const ShownTable& table : describe_data(data, options)) write_table(out, table, options.color);
}

std::string show_row(const Row& row, const text::Tokenizer& tokenizer, const ShowOptions& options) {
  std::string out;
  const size_t size = row.input_ids.size();
  const auto trained = [&](size_t i) { return is_trained(row, i); };
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
