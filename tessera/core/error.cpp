#include "tessera/core/error.h"

#include <algorithm>

#include "tessera/core/terminal_text.h"

namespace tessera {
namespace {

std::string_view kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Config: return "CONFIG";
    case ErrorKind::Data: return "DATA";
    case ErrorKind::Model: return "MODEL";
    case ErrorKind::Checkpoint: return "CKPT";
    case ErrorKind::Storage: return "STORAGE";
    case ErrorKind::Numerics: return "NUMERICS";
    case ErrorKind::Hang: return "HANG";
    case ErrorKind::Peer: return "PEER";
    case ErrorKind::Memory: return "MEMORY";
    case ErrorKind::Internal: return "INTERNAL";
  }
  return "INTERNAL";
}

// Makes one printable line of `text`: user data may hold newlines and control characters.
std::string printable(std::string_view text) {
  constexpr size_t kMaxLength = 2000;
  size_t length = std::min(text.size(), kMaxLength);
  // The cut is not inside a character.
  while (length > 0 && length < text.size() && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80)
    --length;
  return terminal_text(text.substr(0, length)) + (length < text.size() ? "..." : "");
}

}  // namespace

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::Config: return 2;
    case ErrorKind::Data: return 3;
    case ErrorKind::Model: return 4;
    case ErrorKind::Checkpoint: return 5;
    case ErrorKind::Storage: return 6;
    case ErrorKind::Numerics: return 7;
    case ErrorKind::Hang: return 8;
    case ErrorKind::Peer: return 9;
    case ErrorKind::Memory: return 10;
    case ErrorKind::Internal: return 1;
  }
  return 1;
}

Error::Error(ErrorKind kind, std::string_view name, std::string what) : kind_(kind), what_(printable(what)) {
  code_ = "E-";
  code_ += kind_name(kind);
  code_ += '-';
  code_ += name;
  compose();
}

Error& Error::at(std::string_view file, int64_t line, int64_t column) {
  place_ = printable(file);
  if (line > 0) place_ += ':' + std::to_string(line);
  if (line > 0 && column > 0) place_ += ':' + std::to_string(column);
  compose();
  return *this;
}

Error& Error::in(std::string_view place) {
  place_ = printable(place);
  compose();
  return *this;
}

Error& Error::within(std::string_view text) {
  what_ = printable(text) + ": " + what_;
  compose();
  return *this;
}

Error& Error::got(std::string_view value) {
  got_ = printable(value);
  compose();
  return *this;
}

Error& Error::need(std::string_view value) {
  need_ = printable(value);
  compose();
  return *this;
}

Error& Error::hint(std::string_view text) {
  hint_ = printable(text);
  compose();
  return *this;
}

void Error::compose() {
  text_ = "error[" + code_ + "]: ";
  if (!place_.empty()) text_ += place_ + ": ";
  text_ += what_;
  if (!got_.empty()) text_ += "; got " + got_;
  if (!need_.empty()) text_ += (got_.empty() ? "; need " : ", need ") + need_;
  if (!hint_.empty()) text_ += ". hint: " + hint_;
}

void throw_internal(const char* file, int line, const char* condition, const std::string& message) {
  throw Error(ErrorKind::Internal, "ASSERT", message + " (" + condition + ")")
      .at(file, line)
      .hint("this is a defect of tessera, please report it");
}

}  // namespace tessera
