// The rows of FastChat's files: one JSON object a line, each with its place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/error.h"
#include "tessera/io/log_file.h"

namespace tessera::scoring::judge {

using Json = nlohmann::ordered_json;

struct Row {
  Json value;  // an object
  SourcePlace place;

  // Each getter throws the Error(Data, "JUDGE-ROW") at the row's place where the key is missing or holds
  // another type.
  std::string text(const std::string& key) const;
  int64_t integer(const std::string& key) const;
  double number(const std::string& key) const;
  std::vector<std::string> texts(const std::string& key) const;
  // Returns the question's id, which is a whole number or a text.
  Json question_id() const;
  // Returns 1 or 2, the question of a conversation that the row is about.
  int64_t turn() const;

  // Makes the error about a key.
  Error problem(const std::string& key, const std::string& need) const;
};

// Reads a file of JSON lines, of one array (.json) or of a table (.parquet). Throws Storage, and Error(Data)
// at file:line for what is no JSON object.
std::vector<Row> read_rows(const std::string& path);

// A file of rows that a run continues: it keeps what is there and appends whole rows. The file is removed at
// the end if it has got none.
class RowLog {
 public:
  // Opens the file, makes it and its folder where they are missing, and locks it. A last row that a killed
  // process has left in part is taken away, and a line tells so. Throws what LogFile and read_rows() throw.
  explicit RowLog(const std::string& path);
  ~RowLog();
  RowLog(const RowLog&) = delete;
  RowLog& operator=(const RowLog&) = delete;

  // The rows that were there when the file was opened.
  const std::vector<Row>& rows() const { return rows_; }
  // Appends a row. Must not be called by two threads at once. Throws Storage.
  void append(const Json& row);

 private:
  io::LogFile log_;
  std::vector<Row> rows_;
};

// Writes a row as one line of ASCII.
std::string line_of(const Json& row);

}  // namespace tessera::scoring::judge
