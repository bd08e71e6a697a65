// The tables that `tessera plan` prints.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/planner/search.h"
#include "tessera/planner/simulation/simulated_step.h"

namespace tessera::cli {

// A plan whose memory was counted.
struct CountedPlan {
  planner::Plan plan;
  // Bytes of the ranks that can differ, one for each stage: of the device at its peak, and of the host and
  // the drive.
  std::vector<double> device_bytes;
  // Likewise, bytes of the device by what they hold.
  std::vector<std::vector<std::pair<std::string, double>>> kinds;
  double host_bytes = 0.0, drive_bytes = 0.0;

  double most() const;
};

// Describes a choice in one line: "dp 8 x 8, tp 8, zero 3, micro-batch 2 x 4, recompute mlp".
std::string describe(const planner::Choice& choice);

// Prints the plans as one JSON object; seconds of a step by term, bytes by stage and tier.
void print_json(const std::vector<CountedPlan>& plans, const planner::Job& job);
void print_plans(const std::vector<CountedPlan>& plans, const planner::Cluster& cluster);
// Prints time, cost and energy of the run, or of 10^9 tokens where its length is not known.
void print_run(const CountedPlan& plan, const planner::Cluster& cluster, double steps);
// Prints every term of the step's time and of the memory.
void print_terms(const planner::Plan& plan, const planner::Cluster& cluster);
void print_rules();
// Prints the table of known devices, as docs/planner.md has it.
void print_devices();
// Prints a table of the literature, or all of them for "all". Throws Error(Config) for an unknown name, with
// the known ones.
void print_published(const std::string& name);

// Returns the page of the plans (planner/plan_page.h); `found` are all that fit, `step` is that of the first.
std::string page_of(const std::string& title, const std::vector<CountedPlan>& plans,
                    const std::vector<planner::Plan>& found, const planner::Cluster& cluster,
                    const planner::Job& job, planner::SimulatedStep step);

}  // namespace tessera::cli
