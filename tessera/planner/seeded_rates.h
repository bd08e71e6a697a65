// Makes the rates of a cluster agree with steps that were measured on it.
#pragma once

#include <span>

#include "tessera/planner/choice.h"
#include "tessera/planner/cluster.h"
#include "tessera/planner/constants.h"
#include "tessera/planner/model_work.h"

namespace tessera::planner {

// A step that was measured, in tokens per second of all ranks.
struct MeasuredStep {
  Choice choice;
  double tokens_per_s = 0.0;
};

// The factors by which the rates of products, of memory and of the links within a node changed, and the
// errors of the sum before and after: the square root of the mean squared logarithm of planned over measured.
struct SeededRates {
  Cluster cluster;
  double products = 1.0, memory = 1.0, links = 1.0;
  double error_before = 0.0, error_after = 0.0;
};

// Returns the cluster with the rates for which the sum (step_time.h) comes nearest to the steps. A rate that
// the steps say nothing about stays as it is, and none changes by more than a factor of 5. Needs a step.
SeededRates seeded_rates(const ModelWork& work, const Cluster& cluster, const Job& job,
                         std::span<const MeasuredStep> steps, const Software& software = kTessera);

}  // namespace tessera::planner
