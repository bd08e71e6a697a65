// Translates the keys a user wrote into native keys only.
#pragma once

#include <string>
#include <vector>

#include "tessera/config/node.h"
#include "tessera/config/problems.h"

namespace tessera::config {

// A parsed file, and the section whose keys it holds; a recipe has the section "".
struct SourceFile {
  Node root;
  std::string_view section = "";
};

// Returns a map of native keys (also in entries of lists) made from `files` by the tables of foreign_keys.h.
// Blank values are dropped. Keys without effect are named in one warning for each file. A value from the
// command line replaces the file's; two keys of files that mean one native key must agree. A relative
// `deepspeed:` path is looked for in the current folder, in the folder of the file that holds the key, and in
// `folder`. Problems: E-CONFIG-UNKNOWN-KEY (with "did you mean", or the section a key belongs to),
// -UNSUPPORTED, -CONFLICT (both keys named), -TYPE, and the errors of reading a DeepSpeed file.
Node translate(const std::vector<SourceFile>& files, const std::string& folder, Problems& problems);

// Returns every key path that a recipe may hold: native ones first, entries of lists as "datasets.0.path".
std::vector<std::string> all_key_paths();

}  // namespace tessera::config
