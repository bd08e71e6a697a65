// The tables that `tessera plan` prints.
#pragma once

#include <string>
#include <vector>

#include "tessera/planner/search.h"

namespace tessera::cli {

// A plan whose memory was counted.
struct CountedPlan {
  planner::Plan plan;
  // Bytes of the ranks that can differ, one for each stage: of the device at its peak, and of the host and
  // the drive.
  std::vector<double> device_bytes;
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

}  // namespace tessera::cli
