// Small text helpers: nearest names, sizes and times for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Levenshtein distance in bytes, where a swap of two neighbours is one step too.
int64_t edit_distance(std::string_view a, std::string_view b);

// Gives the candidate nearest to `word`, for "did you mean"; empty if none is near. A near one differs in at
// most a quarter of the letters of `word`, and in no more than three (one always may); the same holds for
// each word of a name.
std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);

// Writes a size as "1.5 GiB", "312 MiB", "17 B".
std::string format_bytes(int64_t bytes);
// Writes a time as "2h05m", "3m20s", "12s".
std::string format_duration(double seconds);
// Writes a count as "1,234,567".
std::string group_digits(int64_t count);
// Writes a shape as "[2, 3]".
std::string format_shape(const std::vector<int64_t>& shape);
// Joins the parts, with `separator` between them.
std::string join(const std::vector<std::string>& parts, std::string_view separator);

// Gives the text with ASCII letters in lower case.
std::string lower(std::string_view text);

// Gives the text up to its first line break.
std::string first_line(std::string_view text);

}  // namespace tessera
