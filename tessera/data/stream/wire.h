// The form of what ranks that make rows together send to each other.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/error.h"

namespace tessera::data {

// Writes values one behind the other: numbers with seven bits in a byte, lowest bits first, texts and ids
// behind their lengths.
class WireWriter {
 public:
  void number(uint64_t value);
  void number(int64_t value) { number(static_cast<uint64_t>(value)); }
  void text(std::string_view text);
  void ids(std::span<const int32_t> ids);
  // Writes an error of which WireReader::error() makes one that says the same, word for word.
  void error(const Error& error);

  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads the values that a WireWriter has written, in the same order. Throws Error(Internal) if there is less
// than is read. The bytes are borrowed.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  bool is_at_end() const { return at_ == bytes_.size(); }
  uint64_t number();
  int64_t signed_number() { return static_cast<int64_t>(number()); }
  std::string_view text();
  std::vector<int32_t> ids();
  Error error();

 private:
  std::string_view bytes_;
  size_t at_ = 0;
};

// A message comes from a rank that has done its part (begin_message()), or says why it has not
// (failure_message()). An error of the data is passed on as it is, since it is every rank's; of any other
// error the message names the rank.
WireWriter begin_message();
std::string failure_message(const std::exception_ptr& failure, size_t rank);
// Returns a reader of the rest of a message. Throws the error of a rank that failed.
WireReader open_message(std::string_view message);

}  // namespace tessera::data
