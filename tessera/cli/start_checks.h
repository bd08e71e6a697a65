// What the program needs of the process it runs in, checked before a verb starts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::cli {

// Refuses what would fail later with a library's words, or would be passed over: a TESSERA_ variable with a
// value that it does not have, fewer threads than this process uses. Variables of OpenMP that have no
// sense are told in one line each, by `library_words` (before_main.h), and left out, also for the ranks that
// this process starts. Throws Error(Config).
void check_start(const std::vector<std::string>& library_words);

// Whether the system lets this user start `plain` threads beside a team of `team` OpenMP threads now; tried
// in a process of its own, which ends at once.
bool can_start_threads(int64_t plain, int64_t team);

}  // namespace tessera::cli
