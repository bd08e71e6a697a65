// Small text helpers: nearest names, sizes and times for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Levenshtein distance in bytes, where a swap of two neighbours is one step too.
int64_t edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `word`, for "did you mean"; empty when none is near (more than a quarter of
// the letters, or of those of one word, differ, or more than three).
std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);

// "1.5 GiB", "312 MiB", "17 B"
std::string format_bytes(int64_t bytes);
// "2h05m", "3m20s", "12s"
std::string format_duration(double seconds);
// "[2, 3]"
std::string format_shape(const std::vector<int64_t>& shape);
// a, b, c joined by `separator`
std::string join(const std::vector<std::string>& parts, std::string_view separator);

// ASCII letters in lower case.
std::string lower(std::string_view text);

// Up to the first line break.
std::string first_line(std::string_view text);

// Byte offset of the first byte that is not valid UTF-8, or -1 when all is valid.
int64_t find_invalid_utf8(std::string_view text);

}  // namespace tessera
