// The check of every file that a verb's option or a recipe's key names for writing.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/io/run_inputs.h"

namespace tessera::io {

struct OutputFile {
  std::string path;
  std::string named_by;             // "--html": what names the file
  std::vector<ResultInput> inputs;  // what the run reads
  // Tells from the first bytes of a file (kKnownBytes at most) that it is an earlier output of the same kind,
  // which may be replaced. Empty: no older file may be.
  std::function<bool(std::string_view begin)> is_earlier_output = {};
  bool overwrites = false;                       // any file that is no input may be replaced
  std::string how_to_overwrite = "--overwrite";  // what the user writes for that; "" where nothing does it
};

inline constexpr size_t kKnownBytes = 256;

// Throws Error(Config) unless the file may be written:
//  - "OUTPUT-INPUT": it is an input, or a file of a folder that is one and no earlier output,
//  - "OUTPUT-USED": another file is there, or a folder, a device or a pipe.
// A missing or empty file may always be written. Changes nothing, so it comes before the work.
void check_output_file(const OutputFile& file);

// Returns an is_earlier_output for files that begin with this text.
std::function<bool(std::string_view begin)> begins_with(std::string text);

}  // namespace tessera::io
