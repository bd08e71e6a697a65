#include "tessera/core/strings.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>

namespace tessera {

int64_t edit_distance(std::string_view a, std::string_view b) {
  // These are three rows of the table of distances between prefixes: two letters may be swapped in place.
  std::vector<int64_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(above);
    above.swap(row);
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t substituted = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, substituted});
      const bool is_swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

namespace {

int64_t allowed_distance(size_t size) { return std::clamp<int64_t>(static_cast<int64_t>(size) / 4, 1, 3); }

// Tells whether each word of `a` (parted by '_') is near its counterpart in `b`: a whole other word is
// another name.
bool has_near_words(std::string_view a, std::string_view b) {
  if (std::count(a.begin(), a.end(), '_') != std::count(b.begin(), b.end(), '_')) return true;
  while (true) {
    const size_t end_a = a.find('_'), end_b = b.find('_');
    const std::string_view word = a.substr(0, end_a);
    if (edit_distance(word, b.substr(0, end_b)) > allowed_distance(word.size())) return false;
    if (end_a == std::string_view::npos) return true;
    a.remove_prefix(end_a + 1);
    b.remove_prefix(end_b + 1);
  }
}

}  // namespace

std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr size_t kMaxWord = 128;
  if (word.empty() || word.size() > kMaxWord) return "";
  std::string best;
  int64_t best_distance = allowed_distance(word.size()) + 1;
  for (const std::string& candidate : candidates) {
    const int64_t distance = edit_distance(word, candidate);
    if (distance < best_distance && has_near_words(word, candidate)) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string format_bytes(int64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 || value >= 100.0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0.0) || seconds > 1e9) return "?";
  const auto total = static_cast<int64_t>(seconds + 0.5);
  char text[32];
  if (total >= 3600) {
    std::snprintf(text, sizeof text, "%ldh%02ldm", static_cast<long>(total / 3600),
                  static_cast<long>(total / 60 % 60));
  } else if (total >= 60) {
    std::snprintf(text, sizeof text, "%ldm%02lds", static_cast<long>(total / 60),
                  static_cast<long>(total % 60));
  } else {
    std::snprintf(text, sizeof text, "%lds", static_cast<long>(total));
  }
  return text;
}

std::string group_digits(int64_t count) {
  std::string text = std::to_string(count);
  const size_t first = count < 0 ? 1 : 0;
  for (size_t at = text.size(); at > first + 3;) text.insert(at -= 3, 1, ',');
  return text;
}

std::string format_shape(const std::vector<int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const int64_t size : shape) sizes.push_back(std::to_string(size));
  return "[" + join(sizes, ", ") + "]";
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
  return out;
}

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

}  // namespace tessera
