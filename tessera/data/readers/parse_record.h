// Makes a JSON object of a raw record.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "tessera/data/readers/raw_record.h"

namespace tessera::data {

// Returns the record's value. If it has none, parses its text, which must be one JSON object of at most 64
// levels, in UTF-8, without NUL characters, lone surrogates, or a key that stands twice in an object. Throws
// Error(Data) at file:line:column (column in bytes).
nlohmann::ordered_json parse_record(const RawRecord& record, const std::string& file);

}  // namespace tessera::data
