#include "tessera/io/gguf_parts.h"

#include <cstdio>

#include "tessera/core/error.h"
#include "tessera/io/file.h"

namespace tessera::io {
namespace {

// Returns the end of a part's name: "-00001-of-00003.gguf".
std::string ending_of(const GgufPart& part) {
  char text[64];
  std::snprintf(text, sizeof text, "-%05llu-of-%05llu.gguf", static_cast<unsigned long long>(part.number + 1),
                static_cast<unsigned long long>(part.count));
  return text;
}

}  // namespace

std::string GgufPart::text() const {
  return "part " + std::to_string(number + 1) + " of " + std::to_string(count);
}

std::vector<std::string> gguf_part_paths(const std::string& path, const GgufPart& named) {
  const std::string ending = ending_of(named);
  if (named.number >= named.count || !path.ends_with(ending)) {
    throw Error(ErrorKind::Model, "GGUF-PARTS",
                "the file is one of several, but its name is not that of a part")
        .in(path)
        .got(named.text())
        .need("a name that ends in " + ending)
        .hint("the parts are found by their names, so they keep the names that they were made with");
  }
  const std::string stem = path.substr(0, path.size() - ending.size());
  std::vector<std::string> paths;
  for (GgufPart part{0, named.count}; part.number < part.count; ++part.number) {
    paths.push_back(stem + ending_of(part));
    if (exists(paths.back())) continue;
    throw Error(ErrorKind::Model, "GGUF-PARTS", part.text() + " of the model is missing")
        .in(paths.back())
        .got("no such file")
        .need("all parts in one folder");
  }
  return paths;
}

}  // namespace tessera::io
