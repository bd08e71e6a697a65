// One record of a dataset file with its place.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace tessera::data {

// The longest record that is read. Longer lines or array elements are refused, so that memory stays bounded.
constexpr int64_t kMaxRecordBytes = int64_t{64} << 20;
// So many levels of objects and lists may a record have; deeper ones are refused.
constexpr int64_t kMaxRecordDepth = 64;

struct RawRecord {
  std::string text;  // one JSON value, or a piece of a text file; empty where `value` is set
  std::shared_ptr<const nlohmann::ordered_json> value;  // the object that a row of a table is
  int64_t value_bytes = 0;                              // about the length of `value` as JSON
  int64_t line = 1;         // line of the first byte of `text`, 1-based; 0 in files without lines (tables)
  int64_t column = 1;       // column of this byte, in bytes, 1-based; 0 in files without lines
  int64_t byte_offset = 0;  // offset of the first byte of `text` in the file
  int64_t element = -1;     // index in the array of a .json file, or row of a table; -1 elsewhere
  // The fields tell whether the record begins and ends its document: a text file longer than one piece is one
  // document in several records.
  bool begins_document = true;
  bool ends_document = true;

  int64_t bytes() const { return std::ssize(text) + value_bytes; }
};

// Counts of what a reader met besides records. Nothing is skipped without being counted.
struct ReadCounts {
  int64_t blank_lines = 0;
  int64_t crlf_lines = 0;
  bool byte_order_mark = false;
  bool missing_final_newline = false;
};

}  // namespace tessera::data
