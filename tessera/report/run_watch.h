// Tells how runs are doing whose folders somebody watches.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tessera::report {

enum class RunPhase {
  Running,
  Finished,
  Failed,  // it has ended without a result
  Stale,   // it has not ended, but was killed, or has not written for long
};

// Returns "running" and so on.
const char* phase_name(RunPhase phase);

struct RunStatus {
  RunPhase phase = RunPhase::Finished;
  int64_t step = 0;  // the last one of the metrics
  std::optional<int64_t>
      steps;  // that the run will have made at its end, as far as its recipe and epochs tell
  std::optional<double> seconds_left;  // of a running one, by the time of its last steps
  double quiet_s = 0;                  // since the metrics were written to
  int64_t bytes = 0;                   // of the metrics
  int64_t sample_bytes = 0;            // of the file of samples; 0 if there is none
  std::vector<int64_t> checkpoints;    // their steps, ascending
  bool has_hung = false;               // a report of a hang lies beside the folder
};

// The runs of some folders, in an order that only grows, so that the index of a run stays.
class RunWatch {
 public:
  // `folders` are output folders, those of runs that still go on, or folders of such folders. Throws
  // Error(Config, "REPORT") for a folder that does not exist and has no run that goes on beside it.
  explicit RunWatch(std::vector<std::string> folders);

  // Looks for runs that have come into the folders. Links that lead out of them are left out.
  void look();
  size_t size() const { return outputs_.size(); }
  // The name of a run: the end of its folder's path, as much as tells it from the others.
  std::vector<std::string> names() const;
  // Returns how a run is doing at `now`, in seconds since 1970. Throws Error(Storage) if its folder has gone.
  RunStatus status(size_t run, double now) const;
  // Returns the path of a file of the newest run into this output folder: that which goes on or has failed,
  // or else the finished one.
  std::string file(size_t run, const std::string& name) const;
  // Returns the text of its recipe.yaml, or of its first 4 MiB; "" if there is none. Throws Error(Storage).
  std::string recipe(size_t run) const;

 private:
  void add(const std::string& output);

  const std::vector<std::string> folders_;
  std::vector<std::string> outputs_;  // absolute paths of output folders
  std::set<std::string> known_;
};

}  // namespace tessera::report
