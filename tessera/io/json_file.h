// Strict JSON of untrusted files: duplicate keys, deep nesting and broken UTF-8 are errors with a place.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "tessera/core/error.h"

namespace tessera::io {

struct JsonLimits {
  int64_t max_depth = 64;
  int64_t max_bytes = int64_t{256} << 20;
};

// Parses one JSON value; whitespace around it is allowed, comments, a byte-order mark, NUL bytes and
// anything after it are not. Throws Error(kind) "<place>: byte N: ...", with the key when it is known.
nlohmann::json parse_json(std::string_view text, const std::string& place, ErrorKind kind = ErrorKind::Model,
                          const JsonLimits& limits = {});

// parse_json of a file. Throws Storage when it cannot be read, Error(kind) for its contents and size.
nlohmann::json read_json_file(const std::string& path, ErrorKind kind = ErrorKind::Model,
                              const JsonLimits& limits = {});

}  // namespace tessera::io
