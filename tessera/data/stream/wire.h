// What ranks that make rows together write for each other.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/error.h"

namespace tessera::data {

// Numbers of seven bits a byte, texts and ids behind their lengths, in the order of writing.
class WireWriter {
 public:
  void number(uint64_t value);
  void number(int64_t value) { number(static_cast<uint64_t>(value)); }
  void text(std::string_view text);
  void ids(std::span<const int32_t> ids);
  // What read_error() makes of it says the same, word for word.
  void error(const Error& error);

  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Ends by Error(Internal) where there is less than is read. The bytes are borrowed.
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

// A message is of a rank that has done its part, or says why it has not. Errors of the data are those of
// every rank; of others the message names the rank.
WireWriter begin_message();
std::string failure_message(const std::exception_ptr& failure, size_t rank);
// The rest of a message; throws the error of a rank that failed.
WireReader open_message(std::string_view message);

}  // namespace tessera::data
