// The names of the files of a GGUF model that stands in several: "x-00001-of-00003.gguf".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::io {

// Says which part of a model a file is: the keys split.no, from 0 on, and split.count.
struct GgufPart {
  uint64_t number = 0, count = 0;
  std::string text() const;  // "part 1 of 3", from 1 on as in the files' names
};

// Returns the paths of all parts of a model, in their order, of which the file `path` is the part `named`.
// Throws Error(Model) if the file's own name does not say so, and for a part that does not exist.
std::vector<std::string> gguf_part_paths(const std::string& path, const GgufPart& named);

// Returns the names of all parts of the model of which the file of this name is one; the name alone if it is
// not that of a part.
std::vector<std::string> gguf_part_names(const std::string& name);

}  // namespace tessera::io
