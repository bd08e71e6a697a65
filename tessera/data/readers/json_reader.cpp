#include <algorithm>

#include "tessera/core/error.h"
#include "tessera/core/strings.h"
#include "tessera/data/readers/record_reader.h"
#include "tessera/io/file_bytes.h"

namespace tessera::data {
namespace {

bool is_json_space(int byte) { return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r'; }

// Names under which the one object of a file holds its rows, as services and older datasets have it.
constexpr std::string_view kListNames[] = {"data",    "rows",    "train",    "examples",
                                           "samples", "records", "instances"};

// Cuts the text into elements by following strings and brackets; each element is parsed later, by whoever
// takes the record. So a file of any size is read in the memory of one element.
class JsonReader : public RecordReader {
 public:
  explicit JsonReader(const std::string& path) : bytes_(path) {
    counts_.byte_order_mark = bytes_.had_byte_order_mark();
    advance();
  }

  bool next(RawRecord& record) override {
    if (done_) return false;
    try {
      return next_element(record);
    } catch (...) {
      done_ = true;
      throw;
    }
  }

  bool can_continue() const override { return false; }

 private:
  bool next_element(RawRecord& record) {
    skip_space();
    if (elements_ == 0 && !in_array_) {
      if (byte_ == -1) return finish();
      if (byte_ == '[') {
        in_array_ = true;
        advance();
        skip_space();
        if (byte_ == ']') return close_array();
      } else if (byte_ == '{') {
        read_element(record);
        if (!is_wrapped_) return true;
        record = RawRecord{};
        elements_ = 0;
      }
    } else if (in_array_) {
      if (byte_ == ']') return close_array();
      if (byte_ == -1) throw error("TRUNCATED", "the file ends inside the array").need("']'");
      if (byte_ != ',') throw error("JSON", "no comma between elements").got(shown_byte()).need("',' or ']'");
      advance();
      skip_space();
      if (byte_ == ']') throw error("JSON", "a comma before the end of the array");
    } else if (byte_ == -1) {
      return finish();
    }
    read_element(record);
    return true;
  }

  void read_element(RawRecord& record) {
    if (byte_ == -1) throw error("TRUNCATED", "the file ends inside the array").need("an element");
    record = RawRecord{};
    record.line = line_;
    record.column = column_;
    record.byte_offset = bytes_.offset() - 1;
    if (in_array_) record.element = elements_;
    ++elements_;

    int64_t depth = 0;
    bool in_string = false, escaped = false;
    size_t name_begin = 0;  // where the last string of the outermost object begins
    while (true) {
      if (byte_ == -1) {
        if (depth == 0 && !in_string) return;
        throw error("TRUNCATED",
                    "the file ends inside the element that begins at line " + std::to_string(record.line));
      }
      const bool between = !in_string && depth == 0 && !record.text.empty();
      if (between && (byte_ == ',' || byte_ == ']' || is_json_space(byte_))) return;
      if (in_string) {
        if (byte_ == '\n') throw error("JSON", "a string is not closed before the line ends");
        if (escaped) {
          escaped = false;
        } else if (byte_ == '\\') {
          escaped = true;
        } else if (byte_ == '"') {
          in_string = false;
        }
      } else if (byte_ == '"') {
        in_string = true;
        if (depth == 1) name_begin = record.text.size() + 1;
      } else if (byte_ == '{' || byte_ == '[') {
        ++depth;
      } else if (byte_ == '}' || byte_ == ']') {
        --depth;
      }
      if (byte_ == '\0') throw error("ENCODING", "a NUL byte").need("UTF-8 text");
      if (static_cast<int64_t>(record.text.size()) >= kMaxRecordBytes) {
        throw error("ELEMENT-TOO-LONG",
                    "the element that begins at line " + std::to_string(record.line) + " is too long")
            .need("at most " + format_bytes(kMaxRecordBytes));
      }
      record.text.push_back(static_cast<char>(byte_));
      advance();
      if (opens_list(record, depth, in_string, name_begin)) {
        in_array_ = is_wrapped_ = true;
        return;
      }
      if (depth <= 0 && !in_string && (record.text.back() == '}' || record.text.back() == ']')) return;
    }
  }

  // Returns whether the bytes read so far are one object up to "<name of a list>": [, and an object follows.
  bool opens_list(const RawRecord& record, int64_t depth, bool in_string, size_t name_begin) {
    if (elements_ != 1 || in_array_ || in_string || depth != 2 || record.text.back() != '[') return false;
    const std::string_view head(record.text);
    const size_t name_end = head.find('"', name_begin);
    if (name_end == std::string_view::npos) return false;
    const std::string_view name = head.substr(name_begin, name_end - name_begin);
    const size_t between = head.find_first_not_of(" \t\r\n", name_end + 1);
    if (between == std::string_view::npos || head[between] != ':' || !is_list_name(name)) return false;
    const size_t value = head.find_first_not_of(" \t\r\n", between + 1);
    if (value != head.size() - 1) return false;
    skip_space();
    return byte_ == '{';
  }

  static bool is_list_name(std::string_view name) {
    return std::ranges::find(kListNames, name) != std::end(kListNames);
  }

  // Skips what stands behind the list in the object that holds it.
  void skip_wrapper() {
    int64_t depth = 1;
    bool in_string = false, escaped = false;
    for (; depth > 0; advance()) {
      if (byte_ == -1) throw error("TRUNCATED", "the file ends inside the object that holds the list");
      if (in_string) {
        in_string = escaped || byte_ != '"';
        escaped = !escaped && byte_ == '\\';
        continue;
      }
      in_string = byte_ == '"';
      depth += byte_ == '{' || byte_ == '[' ? 1 : byte_ == '}' || byte_ == ']' ? -1 : 0;
    }
  }

  bool close_array() {
    advance();
    if (is_wrapped_) skip_wrapper();
    skip_space();
    if (byte_ != -1) throw error("JSON", "text after the end of the array").got(shown_byte());
    return finish();
  }

  bool finish() {
    done_ = true;
    return false;
  }

  void advance() {
    if (byte_ == '\n') {
      ++line_;
      column_ = 0;
    }
    byte_ = bytes_.get();
    ++column_;
  }

  void skip_space() {
    while (is_json_space(byte_)) advance();
  }

  std::string shown_byte() const { return "'" + std::string(1, static_cast<char>(byte_)) + "'"; }

  Error error(std::string_view name, const std::string& what) const {
    Error error(
        ErrorKind::Data, name,
        in_array_ ? what + " (element " + std::to_string(std::max<int64_t>(elements_ - 1, 0)) + ")" : what);
    error.at(bytes_.path(), line_, column_);
    return error;
  }

  io::FileBytes bytes_;
  int byte_ = 0;  // the byte to look at, -1 at the end
  int64_t line_ = 1, column_ = 0, elements_ = 0;
  bool in_array_ = false, is_wrapped_ = false, done_ = false;
};

}  // namespace

bool begins_with_array(const std::string& path) {
  io::FileBytes bytes(path);
  int byte = bytes.get();
  while (is_json_space(byte)) byte = bytes.get();
  return byte == '[';
}

std::unique_ptr<RecordReader> open_json(const std::string& path) {
  return std::make_unique<JsonReader>(path);
}

}  // namespace tessera::data
