#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/core/utf8.h"
#include "tessera/data/readers/record_reader.h"
#include "tessera/io/file_bytes.h"

namespace tessera::data {
namespace {

constexpr size_t kMaxColumns = 10'000;

// Reads cells as RFC 4180 has them: quoted ones may hold delimiters, line ends and doubled quotes.
class CsvReader : public RecordReader {
 public:
  CsvReader(const std::string& path, char delimiter) : bytes_(path), delimiter_(delimiter) {
    counts_.byte_order_mark = bytes_.had_byte_order_mark();
    std::vector<Cell> cells;
    if (!read_row(cells)) {
      is_broken_ = true;
      return;
    }
    for (Cell& cell : cells) {
      check_text(cell, columns_.size());
      // This is the name that pandas gives to a column without one, such as the index that it writes.
      if (cell.text.empty()) cell.text = "Unnamed: " + std::to_string(columns_.size());
      if (std::ranges::find(columns_, cell.text) != columns_.end())
        throw error("CSV", "the header names column '" + cell.text + "' twice", cell.line);
      columns_.push_back(std::move(cell.text));
    }
    for (const char other : {';', '\t', ','}) {
      if (columns_.size() != 1 || other == delimiter || columns_[0].find(other) == std::string::npos)
        continue;
      throw error("CSV",
                  std::string("the header is one cell, cut by '") +
                      (other == '\t' ? "\\t" : std::string(1, other)) + "'",
                  cells[0].line)
          .got(columns_[0])
          .need(delimiter == ',' ? "cells with commas between (.csv)" : "cells with tabs between (.tsv)");
    }
  }

  bool next(RawRecord& record) override {
    std::vector<Cell> cells;
    if (is_broken_ || !read_row(cells)) return false;
    record = RawRecord{};
    record.line = cells.front().line;
    record.byte_offset = cells.front().offset;
    if (cells.size() != columns_.size()) {
      throw error("CSV", "the row has another number of cells than the header", record.line)
          .got(std::to_string(cells.size()))
          .need(std::to_string(columns_.size()));
    }
    nlohmann::ordered_json::object_t row;
    for (size_t i = 0; i < cells.size(); ++i) {
      check_text(cells[i], i);
      // A search for a column of the same name would take time, and the header has none twice.
      nlohmann::ordered_json& cell = row.emplace_back(columns_[i], nullptr).second;
      if (!cells[i].text.empty() || cells[i].is_quoted) cell = std::move(cells[i].text);
      record.value_bytes += std::ssize(columns_[i]);
    }
    record.value_bytes += row_bytes_;
    record.value = std::make_shared<const nlohmann::ordered_json>(std::move(row));
    return true;
  }

  bool can_continue() const override { return !is_broken_; }

 private:
  struct Cell {
    std::string text;
    bool is_quoted = false;
    int64_t line = 1, offset = 0;
  };

  // Reads the next row and leaves out blank lines. Returns false at the end of the file.
  bool read_row(std::vector<Cell>& cells) {
    is_broken_ = true;  // stays so if reading throws below: it would throw again
    bool found = true;
    while (true) {
      cells.clear();
      found = !bytes_.peek().empty();
      if (!found) break;
      row_bytes_ = 0;
      while (read_cell(cells)) {
      }
      const bool is_blank = cells.size() == 1 && cells[0].text.empty() && !cells[0].is_quoted;
      if (!is_blank) break;
      ++counts_.blank_lines;
    }
    is_broken_ = false;
    return found;
  }

  // Reads the next cell of a row. Returns whether another cell of the row follows.
  bool read_cell(std::vector<Cell>& cells) {
    Cell& cell = cells.emplace_back();
    cell.line = line_;
    cell.offset = bytes_.offset();
    bool in_quotes = false;
    while (true) {
      const int byte = bytes_.get();
      if (byte == '\n') ++line_;
      if (in_quotes) {
        if (byte == -1) {
          throw broken("TRUNCATED", "the file ends inside the quoted cell that begins here", cell.line)
              .need("'\"'");
        }
        if (byte != '"') {
          append(cell, byte);
        } else if (peek() == '"') {
          append(cell, bytes_.get());
        } else {
          in_quotes = false;
        }
        continue;
      }
      if (byte == '"' && cell.text.empty() && !cell.is_quoted) {
        cell.is_quoted = in_quotes = true;
      } else if (byte == static_cast<unsigned char>(delimiter_)) {
        if (cells.size() > kMaxColumns) throw broken("CSV", "the row has too many cells", cell.line);
        return true;
      } else if (byte == '\n' || byte == -1) {
        if (byte == -1) counts_.missing_final_newline = true;
        return false;
      } else if (byte == '\r' && (peek() == '\n' || peek() == -1)) {
        ++counts_.crlf_lines;
      } else if (cell.is_quoted) {
        throw broken("CSV", "text follows the closing quote of a cell", line_)
            .hint("a quote inside a quoted cell is written twice");
      } else {
        append(cell, byte);
      }
    }
  }

  int peek() {
    const std::string_view block = bytes_.peek();
    return block.empty() ? -1 : static_cast<unsigned char>(block.front());
  }

  void append(Cell& cell, int byte) {
    if (++row_bytes_ > kMaxRecordBytes) {
      throw broken("LINE-TOO-LONG", "the row is too long", cell.line)
          .need("at most " + format_bytes(kMaxRecordBytes))
          .hint("is a quote not closed?");
    }
    cell.text.push_back(static_cast<char>(byte));
  }

  void check_text(const Cell& cell, size_t column) {
    const bool has_nul = cell.text.find('\0') != std::string::npos;
    if (!has_nul && find_invalid_utf8(cell.text) < 0) return;
    throw error("ENCODING",
                std::string(has_nul ? "a NUL byte" : "invalid UTF-8") + " in cell " +
                    std::to_string(column + 1) + ", which begins at byte offset " +
                    std::to_string(cell.offset),
                cell.line)
        .need("UTF-8 text");
  }

  Error error(std::string_view name, const std::string& what, int64_t line) const {
    Error error(ErrorKind::Data, name, what);
    error.at(bytes_.path(), line);
    return error;
  }

  // Makes an error after which nobody can tell where the next row begins.
  Error broken(std::string_view name, const std::string& what, int64_t line) {
    is_broken_ = true;
    return error(name, what, line);
  }

  io::FileBytes bytes_;
  char delimiter_;
  std::vector<std::string> columns_;
  int64_t line_ = 1, row_bytes_ = 0;
  bool is_broken_ = false;
};

}  // namespace

std::unique_ptr<RecordReader> open_csv(const std::string& path, char delimiter) {
  return std::make_unique<CsvReader>(path, delimiter);
}

}  // namespace tessera::data
