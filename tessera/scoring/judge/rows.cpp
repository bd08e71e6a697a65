#include "tessera/scoring/judge/rows.h"

#include <algorithm>

#include "tessera/core/log.h"
#include "tessera/data/readers/parse_record.h"
#include "tessera/data/readers/record_reader.h"
#include "tessera/io/file.h"
#include "tessera/io/json_values.h"

namespace tessera::scoring::judge {
namespace {

const std::string& with_folder(const std::string& path) {
  io::make_directories(io::parent_path(path));
  return path;
}

bool is_row(const std::string& text, const std::string& path) {
  data::RawRecord record;
  record.text = text;
  try {
    data::parse_record(record, path);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void append_to(io::LogFile& log, const std::string& text) {
  if (log.append(text)) return;
  throw Error(ErrorKind::Storage, "APPEND", "a row cannot be written")
      .in(log.path())
      .hint("the disk may be full; the rows before it are whole, and the same command goes on behind them");
}

// Ends the last row as the others end, or takes it away where it is not whole.
void mend_end(io::LogFile& log) {
  const std::string text = log.text();
  if (text.empty() || text.back() == '\n') return;
  const size_t begin = text.rfind('\n') + 1;  // 0 if there is no line break
  if (is_row(text.substr(begin), log.path())) {
    append_to(log, "\n");
    return;
  }
  log::info(log.path() + ": the last row is not whole and is made again");
  log.cut(static_cast<int64_t>(begin));
}

data::FileFormat format_of(const std::string& path) {
  if (path.ends_with(".parquet")) return data::FileFormat::Table;
  return path.ends_with(".json") ? data::FileFormat::Json : data::FileFormat::JsonLines;
}

}  // namespace

Error Row::problem(const std::string& key, const std::string& need) const {
  Error error(ErrorKind::Data, "JUDGE-ROW", "key '" + key + "'");
  error.at(place).need(need);
  const auto found = value.find(key);
  return found == value.end() ? error.got("nothing") : error.got(line_of(*found).substr(0, 80));
}

std::string Row::text(const std::string& key) const {
  const auto found = value.find(key);
  if (found == value.end() || !found->is_string()) throw problem(key, "a text");
  return found->get<std::string>();
}

int64_t Row::integer(const std::string& key) const {
  const auto found = value.find(key);
  const auto number = found == value.end() ? std::nullopt : io::integer_of(*found);
  if (!number) throw problem(key, "a whole number");
  return *number;
}

double Row::number(const std::string& key) const {
  const auto found = value.find(key);
  if (found == value.end() || !found->is_number()) throw problem(key, "a number");
  return found->get<double>();
}

std::vector<std::string> Row::texts(const std::string& key) const {
  const auto found = value.find(key);
  const bool are_texts = found != value.end() && found->is_array() &&
                         std::ranges::all_of(*found, [](const Json& each) { return each.is_string(); });
  if (!are_texts) throw problem(key, "an array of texts");
  return found->get<std::vector<std::string>>();
}

Json Row::question_id() const {
  const auto found = value.find("question_id");
  if (found == value.end() || !(found->is_string() || io::integer_of(*found)))
    throw problem("question_id", "a whole number or a text");
  return found->is_string() ? *found : Json(*io::integer_of(*found));
}

int64_t Row::turn() const {
  const int64_t turn = integer("turn");
  if (turn != 1 && turn != 2) throw problem("turn", "1 or 2");
  return turn;
}

std::vector<Row> read_rows(const std::string& path) {
  std::vector<Row> rows;
  const auto reader = data::open_records(path, format_of(path));
  for (data::RawRecord record; reader->next(record);)
    rows.push_back({data::parse_record(record, path), {path, record.line, 0}});
  return rows;
}

RowLog::RowLog(const std::string& path) : log_(with_folder(path), io::OldRecords::Kept) {
  mend_end(log_);
  if (!log_.is_empty()) rows_ = read_rows(path);
}

RowLog::~RowLog() {
  if (!log_.is_empty()) return;
  try {
    io::remove_file(log_.path());
  } catch (const Error&) {
    // An empty file is harmless.
  }
}

void RowLog::append(const Json& row) { append_to(log_, line_of(row) + "\n"); }

std::string line_of(const Json& row) { return row.dump(-1, ' ', true, Json::error_handler_t::replace); }

}  // namespace tessera::scoring::judge
