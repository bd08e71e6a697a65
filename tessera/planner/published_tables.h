// The tables of the literature on what training takes, beside what the planner says to each row.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::planner {

struct PublishedTable {
  std::string_view name;    // "zero-7.5b"
  std::string_view title;   // one line
  std::string_view source;  // who published it, where
  std::string_view note;    // how its rows were read; "" where nothing needs to be said
  std::vector<std::string> heading;
  std::vector<std::vector<std::string>> rows;
};

// Computes all tables with the sums of the search (step_time.h, memory_use.h), of which nothing is fitted to
// them but what calibration.yaml names, and what a note says.
std::vector<PublishedTable> published_tables();

}  // namespace tessera::planner
