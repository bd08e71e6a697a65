// A page that shows plans: what they need, how they compare, and how a step of the best one runs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/planner/search.h"
#include "tessera/planner/simulation/simulated_step.h"

namespace tessera::planner {

// The first bytes of every such page.
inline constexpr const char* kPlanPageBegin =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<!-- made by tessera plan -->\n";

// The memory of one rank.
struct MemoryBar {
  std::string name;                                   // "plan 1, last stage"
  std::vector<std::pair<std::string, double>> kinds;  // bytes by what they hold
};

struct PlanPage {
  std::string title;
  std::vector<std::vector<std::string>> table;  // of the plans, with a heading
  std::vector<MemoryBar> bars;
  double device_bytes = 0.0;
  std::vector<Plan> candidates;    // all that fit, the fastest first; the fastest 5,000 are drawn
  std::vector<size_t> shown;       // those of them that the table has, in its order
  std::vector<std::string> names;  // of the first candidates, for the reader who points at one
  SimulatedStep step;              // of the first plan
  std::vector<std::string> recipe_lines;
};

// Writes one HTML page that needs nothing else, with the table, memory as bars by kind, tokens/s against
// memory of the candidates, and the timeline of the step. `page` has at least one candidate.
std::string plan_page(const PlanPage& page);

}  // namespace tessera::planner
