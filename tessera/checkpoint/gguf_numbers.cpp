#include "tessera/checkpoint/gguf_numbers.h"

#include <charconv>
#include <cstdio>
#include <limits>

#include "tessera/core/error.h"

namespace tessera::checkpoint {

int64_t gguf_size(const io::GgufFile& file, const std::string& key) {
  const int64_t value = file.get_int(key);
  if (value <= 0) {
    throw Error(ErrorKind::Model, "CONFIG", "bad size")
        .in(file.path() + ": key '" + key + "'")
        .got(std::to_string(value))
        .need("at least 1");
  }
  return value;
}

double gguf_number(const io::GgufFile& file, const std::string& key, double fallback) {
  const double stored = std::isnan(fallback) ? file.get_float(key) : file.get_float(key, fallback);
  // A float64 beyond these bounds would become infinite or zero below. NaN fails both comparisons.
  constexpr double kMost = std::numeric_limits<float>::max(), kLeast = std::numeric_limits<float>::min();
  if (!(stored >= kLeast && stored <= kMost)) {
    char got[32];
    std::snprintf(got, sizeof got, "%g", stored);
    throw Error(ErrorKind::Model, "CONFIG", "bad number")
        .in(file.path() + ": key '" + key + "'")
        .got(got)
        .need("a finite number above 0 that float32 holds");
  }
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, static_cast<float>(stored)).ptr;
  double value = stored;
  std::from_chars(text, end, value);
  return value;
}

}  // namespace tessera::checkpoint
