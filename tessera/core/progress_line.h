// The one line on a terminal that is written again and again, such as the progress of a run.
#pragma once

#include <string_view>

namespace tessera::log {

// Tells whether stream() is a terminal, on which the functions below write.
bool is_terminal();
// Shows `line` in place of the one before, cut to the terminal's width. The next line of the log ends it
// first.
void show_open_line(std::string_view line);
// Takes the open line away, or ends it so that it stays.
void clear_open_line();
void end_open_line();

}  // namespace tessera::log
