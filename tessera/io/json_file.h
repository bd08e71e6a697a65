// Strict JSON of untrusted files: duplicate keys, deep nesting and broken UTF-8 are errors with a place.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "tessera/core/error.h"

namespace tessera::io {

struct JsonLimits {
  int64_t max_depth = 64;
  int64_t max_bytes = int64_t{256} << 20;
};

// Parses one JSON value; whitespace around it is allowed, comments, a byte-order mark, NUL bytes and
// anything after it are not. Throws Error(kind) "<place>: byte N: ..." or "<place>: key 'a.b': ...".
nlohmann::json parse_json(std::string_view text, const std::string& place, ErrorKind kind = ErrorKind::Model,
                          const JsonLimits& limits = {});

// Returns the text of a JSON file without parsing it. Throws Storage when it cannot be read, Error(kind) for
// its size.
std::string read_json_text(const std::string& path, ErrorKind kind = ErrorKind::Model,
                           const JsonLimits& limits = {});
// Reads a file and calls parse_json(). Throws Storage when it cannot be read, Error(kind) for its contents
// and size.
nlohmann::json read_json_file(const std::string& path, ErrorKind kind = ErrorKind::Model,
                              const JsonLimits& limits = {});

// Throws Error(kind) for what JSON parsers commonly let pass: bytes that are not UTF-8, NUL, a byte-order
// mark. The error names the byte, to which `base_offset` is added.
void check_json_bytes(std::string_view text, const std::string& place, ErrorKind kind,
                      int64_t base_offset = 0);
// Makes the Error(kind) for malformed JSON at byte `offset`.
Error json_error(const std::string& place, ErrorKind kind, int64_t offset, std::string_view what);

}  // namespace tessera::io
