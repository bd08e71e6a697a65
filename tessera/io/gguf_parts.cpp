#include "tessera/io/gguf_parts.h"

#include <charconv>
#include <cstdio>

#include "tessera/core/error.h"
#include "tessera/io/file.h"

namespace tessera::io {
namespace {

constexpr std::string_view kEnding = "-00001-of-00003.gguf";

// Returns the end of a part's name, as kEnding.
std::string ending_of(const GgufPart& part) {
  char text[64];
  std::snprintf(text, sizeof text, "-%05llu-of-%05llu.gguf", static_cast<unsigned long long>(part.number + 1),
                static_cast<unsigned long long>(part.count));
  return text;
}

std::vector<std::string> names_of_parts(const std::string& stem, uint64_t count) {
  std::vector<std::string> names;
  for (GgufPart part{0, count}; part.number < count; ++part.number) names.push_back(stem + ending_of(part));
  return names;
}

}  // namespace

std::string GgufPart::text() const {
  return "part " + std::to_string(number + 1) + " of " + std::to_string(count);
}

std::vector<std::string> gguf_part_paths(const std::string& path, const GgufPart& named) {
  const std::string ending = ending_of(named);
  if (named.number >= named.count || !path.ends_with(ending)) {
    throw Error(ErrorKind::Model, "GGUF-PARTS",
                "the file is one part of several, but its name does not follow the pattern for parts")
        .in(path)
        .got(named.text())
        .need("a name that ends in " + ending)
        .hint("parts are found by their names, so do not rename them");
  }
  std::vector<std::string> paths = names_of_parts(path.substr(0, path.size() - ending.size()), named.count);
  for (size_t i = 0; i < paths.size(); ++i) {
    if (exists(paths[i])) continue;
    throw Error(ErrorKind::Model, "GGUF-PARTS", GgufPart{i, named.count}.text() + " of the model is missing")
        .in(paths[i])
        .got("no such file")
        .need("all parts in one folder");
  }
  return paths;
}

std::vector<std::string> gguf_part_names(const std::string& name) {
  if (name.size() < kEnding.size()) return {name};
  const std::string stem = name.substr(0, name.size() - kEnding.size());
  const char* const ending = name.data() + stem.size();
  uint64_t number = 0, count = 0;
  std::from_chars(ending + kEnding.find('0'), ending + kEnding.find("-of-"), number);
  std::from_chars(ending + kEnding.rfind("-") + 1, ending + kEnding.rfind('.'), count);
  const bool is_part = number >= 1 && number <= count && stem + ending_of({number - 1, count}) == name;
  return is_part ? names_of_parts(stem, count) : std::vector{name};
}

}  // namespace tessera::io
