// Writes what a run measures for MLflow: into its file store, which `mlflow ui --backend-store-uri FOLDER`
// shows. Tessera sends nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/config/recipe.h"
#include "tessera/io/log_file.h"
#include "tessera/train/reporters/reporter.h"
#include "tessera/train/reporters/sample_table.h"
#include "tessera/train/reporters/scalars.h"

namespace tessera::train {

// Tells whether the recipe asks for it: by use_mlflow, or where that is not given, by an experiment or a
// place.
bool wants_mlflow(const config::TrackerConfig& keys);
// Returns the absolute path of the folder with the experiments: mlflow_tracking_uri, or else mlruns.
std::string mlflow_store(const config::TrackerConfig& keys);

// Writes <mlflow_tracking_uri>/<experiment>/<run>/: meta.yaml, params/, tags/ and metrics/, where each metric
// has a file of lines "<unix ms> <value> <step>", and the table of samples artifacts/eval_samples.json. A
// file that cannot be written is reported once and never stops the training.
class MlflowRun : public Reporter {
 public:
  // Begins a run. Where `resumed_step` is not 0, goes on behind that step with the newest run of this
  // output_dir instead, if there is one. `is_done` tells whether the run has made its last step. Throws
  // Error(Storage).
  MlflowRun(const config::Recipe& recipe, int64_t resumed_step, std::function<bool()> is_done);
  // Writes how the run ended: FINISHED after its last step, FAILED by an error. A run that is stopped stays
  // RUNNING.
  ~MlflowRun() override;

  void on_step(const TrainState& state, StepMetrics& metrics) override;
  void on_line(const StepMetrics& line) override;
  void on_evaluation(int64_t step, const Evaluated& evaluated) override;

  const std::string& folder() const { return folder_; }

 private:
  enum class Status { Running = 1, Finished = 3, Failed = 4 };
  void write_meta(Status status) const;
  void add(const std::string& name, double value, int64_t step, int64_t now_ms);
  void add_all(const Scalars& scalars, int64_t step);
  void add_samples(int64_t step, const std::vector<Sample>& samples);
  void warn(const std::string& why);

  std::string experiment_, id_, name_, folder_;
  int64_t start_ms_ = 0;
  int64_t resumed_step_;
  std::function<bool()> is_done_;
  std::optional<SampleRows> samples_;                          // rows of the table, where it has been read
  bool has_step_ = false;                                      // this start has made one
  std::map<std::string, std::unique_ptr<io::LogFile>> files_;  // by the names of metrics
  bool has_warned_ = false;
};

}  // namespace tessera::train
