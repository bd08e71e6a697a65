// A long run on devices that fail: how often to save, and how much of the time is training.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::planner {

// Failures come at random, independent of each other. Each costs what was done since the last checkpoint, and
// the restart; the next failure may come during either.
struct Failures {
  double mean_s = 0.0;     // between two failures of any device of the run
  double save_s = 0.0;     // in which a checkpoint holds the training up
  double restart_s = 0.0;  // from a failure to the first step behind the checkpoint
};

// Returns the seconds of training between two checkpoints with which most of the time is training: by Young
// (CACM 17, 1974), sqrt(2 save mean); and the higher-order estimate of Daly (FGCS 22, 2006),
// which is better where a checkpoint takes more than some hundredths of the mean.
double young_interval(const Failures& failures);
double daly_interval(const Failures& failures);

// Returns the expected share of the time in which a run that saves every `interval_s` seconds of training
// does work that is kept (Daly, the complete model).
double useful_share(const Failures& failures, double interval_s);

// Plays `runs` runs of `work_s` seconds of training with failures drawn from `seed`, and returns the seconds
// that they take, in ascending order.
std::vector<double> play_runs(const Failures& failures, double interval_s, double work_s, int64_t runs,
                              uint64_t seed);

}  // namespace tessera::planner
