// Patterns of file names, as `data_files` and the cards of datasets have them.
#pragma once

#include <string>
#include <vector>

namespace tessera::io {

// Returns whether the name of a file below a folder ("data/a.jsonl") fits `pattern`: *, ? and [a-z] stay in a
// folder, ** crosses folders, and "a/**/b" fits "a/b" too.
bool fits_pattern(const std::string& name, const std::string& pattern);

struct MatchedFiles {
  std::vector<std::string> names;
  std::string unmatched;  // the first pattern that matches no file; empty if each matches one
};

// Chooses files by patterns from the names of all files below a folder, as Hugging Face's datasets library
// does: pattern by pattern, and those of one pattern in the order of the bytes of their names. Unlike there,
// a file that several patterns fit is taken once, at the first of them. These files are taken only where the
// pattern itself says so: hidden ones (".a.json", ".git/a.json"), those in folders such as "__MACOSX", and
// those that describe a dataset (README.md, config.json, dataset_info.json, ...).
MatchedFiles match_files(std::vector<std::string> names, const std::vector<std::string>& patterns);

}  // namespace tessera::io
