// Checks the process that the program runs in, before a verb starts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::cli {

// Refuses settings that would fail later with a library's words, or would be ignored: a TESSERA_ variable
// with a value that it does not have, or fewer threads than this process uses. Warns in one line each of
// OpenMP variables that make no sense, as `library_words` (words_of_libraries()) tells, and unsets them, also
// for the ranks that this process starts. Throws Error(Config).
void check_start(const std::vector<std::string>& library_words);

// Returns whether the system now lets this user start `plain` threads beside a team of `team` OpenMP threads.
// Tries it in a process of its own, which ends at once.
bool can_start_threads(int64_t plain, int64_t team);

}  // namespace tessera::cli
