// Writes what a run measures for Weights & Biases: the file that `wandb sync` uploads. Tessera sends nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/config/recipe.h"
#include "tessera/train/reporters/reporter.h"
#include "tessera/train/reporters/run_logs.h"
#include "tessera/train/reporters/sample_table.h"
#include "tessera/train/reporters/scalars.h"

namespace tessera::train {

// Tells whether the recipe asks for it: by use_wandb, or where that is not given, by a wandb_project; never
// with wandb_mode: disabled.
bool wants_wandb(const config::TrackerConfig& keys);

// Writes wandb/offline-run-<date>_<time>-<number>/run-<number>.wandb and, for the samples of each evaluation,
// a table files/media/table/eval/samples_<number of the record>_<hash>.table.json beside it.
class WandbFile : public Reporter {
 public:
  // Starts the file in `logs`, which outlives this, or goes on with the one that a checkpoint kept; its
  // tables are made again of the samples.jsonl that the checkpoint kept. Throws Error(Storage).
  WandbFile(RunLogs& logs, const config::Recipe& recipe);

  void on_line(const StepMetrics& line) override;
  void on_evaluation(int64_t step, const Evaluated& evaluated) override;

 private:
  // Adds a history record with this number. `table` is the value of kSamplesTag in it; "" for none.
  void add(int64_t number, int64_t step, const Scalars& scalars, const std::string& table = "");
  // Writes the table of an evaluation, and tells of the file where `is_new`. Returns the value of the history
  // that names it; "" where it cannot be written.
  std::string add_table(int64_t step, const SampleRows& rows, bool is_new);
  void append(const std::string& record);

  RunLogs& logs_;
  std::string number_;  // in the names of the run's files
  std::string name_;    // of the run's file
  io::LogFile& file_;
  double begin_;  // of this start, in seconds since 1970
};

// Returns the record in the framing of the file at `offset`: LevelDB's log format, in blocks of 32 KiB, with
// zlib's CRC-32 over type and data. The file begins with wandb_file_header().
std::string wandb_framed(std::string_view record, int64_t offset);
std::string wandb_file_header();

}  // namespace tessera::train
