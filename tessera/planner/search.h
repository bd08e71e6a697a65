// Finds the fastest ways to run a job on a cluster.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/planner/choice.h"
#include "tessera/planner/cluster.h"
#include "tessera/planner/memory_use.h"
#include "tessera/planner/model_work.h"
#include "tessera/planner/step_time.h"

namespace tessera::planner {

struct Plan {
  Choice choice;
  StepTime time;
  MemoryUse memory;
};

struct SearchResult {
  std::vector<Plan> plans;  // those that fit, the fastest first; one for each product of axes, ZeRO stage,
                            // schedule, micro-batch, recomputation, offload
  std::optional<Plan> nearest;  // where none fits: the one that needs least memory
  int64_t examined = 0, fitting = 0;
};

// Goes through every product of the axes, ZeRO stages, secondary shards, schedules, micro-batches,
// recomputation and offload that makes a step of job.sequences_per_step sequences on all devices of the
// cluster. What `kept` says of precision, adapter and base stays. Makes no tensor. A result without plans and
// without `nearest` means that no product of axes deals the step's sequences evenly.
SearchResult search(const ModelWork& work, const Cluster& cluster, const Job& job, const Choice& kept,
                    const Software& software = kTessera);

// A change of the job, the recipe or the cluster with which something would fit.
struct Change {
  std::string text;  // "sequence_len: 4096"
  Plan plan;
};

// Returns the changes that would make a job fit, each alone, beginning with the one that changes least:
// states on the host, shorter sequences, narrower states, adapters, more devices.
std::vector<Change> changes_that_fit(const ModelWork& work, const Cluster& cluster, const Job& job,
                                     const Choice& kept, const Software& software = kTessera);

// Returns why the device cannot compute in this precision at all; empty if it can.
std::string why_not(const Device& device, Precision precision);

}  // namespace tessera::planner
