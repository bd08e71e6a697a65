// The folder that a run leaves, from the first look at its place to the result in it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/checkpoint/save_folder.h"
#include "tessera/checkpoint/sharded_checkpoint.h"
#include "tessera/comm/communicator.h"
#include "tessera/config/recipe.h"
#include "tessera/io/result_folder.h"
#include "tessera/text/tokenizer/tokenizer.h"
#include "tessera/train/reporters/reporter.h"
#include "tessera/train/reporters/run_logs.h"
#include "tessera/train/run/run_signals.h"
#include "tessera/train/setup/setup.h"
#include "tessera/train/step/training.h"

namespace tessera::train {

// Throws what RunOutput would throw now for the recipe's output_dir. Leaves nothing behind. Not collective.
void check_output(const config::Recipe& recipe);

// The folder of a run's output. The first rank of `world` writes it. Calls are collective unless they say
// otherwise, and throw on every rank what went wrong on any. An older result stays untouched until save() is
// done.
class RunOutput {
 public:
  // Checks and locks output_dir. Comes before anything that takes time, also before the recipe's dtype is
  // known. Throws what ResultFolder throws. `signals`, which outlive this, are told what an end at once has
  // to say and to remove.
  RunOutput(const config::Recipe& recipe, std::shared_ptr<comm::Communicator> world, RunSignals& signals);
  ~RunOutput();

  // Begins to write, once the first step is sure to come: recipe.yaml, of `recipe` as resolved, and the logs,
  // which go on where those of `checkpoint` end, if there is one. `trained` and `tokenizer` are what save()
  // will be given. Throws Error(Storage) where there is no space for the result and a checkpoint of
  // `checkpoint_bytes`.
  void begin(const config::Recipe& recipe, const TrainedModel& trained,
             const std::optional<text::Tokenizer>& tokenizer, const checkpoint::ShardedCheckpoint* checkpoint,
             int64_t checkpoint_bytes);
  // Returns the reporters that write what the run tells; none but on the first rank. `training` outlives
  // them. For use after begin().
  std::vector<std::unique_ptr<Reporter>> reporters(const Training& training);
  // Returns what the logs hold by now, for a checkpoint; nothing but on the first rank. Not collective.
  std::vector<std::pair<std::string, std::string>> logs() const;
  // Removes the checkpoints in output_dir that the one of `step` and `run`, which is in place, outdates:
  // those of later steps, those of other runs, older ones that serve a restart alone, and the oldest beyond
  // save_total_limit, but not that of `best_step` (0 for none). Sets the files of an older result, which this
  // run replaces, aside in output_dir. Warns of what cannot be removed. Not collective; may be called on
  // another thread.
  void remove_outdated(int64_t step, const std::string& run, int64_t best_step) const;
  // Notes that the checkpoint of `step` is in place, when step `current` has been made: from now on an
  // interrupt leaves it, and save() leaves it beside the result. Not collective.
  void has_saved(int64_t step, int64_t current);
  // Writes what was trained, unless save_final is false, and puts the folder in place, beside the run's
  // checkpoints.
  void save(const TrainedModel& trained, const checkpoint::BaseFiles& base,
            const std::optional<text::Tokenizer>& tokenizer);

 private:
  // Says, for the notice of an interrupt, what would stay.
  std::string what_stays() const;
  void add_trackers(std::vector<std::unique_ptr<Reporter>>& reporters, const Training& training);
  void write_recipe() const;
  void put_logs_back();
  void require_space(const TrainedModel& trained, const std::optional<text::Tokenizer>& tokenizer,
                     int64_t more_bytes) const;

  config::Recipe recipe_;
  std::shared_ptr<comm::Communicator> world_;
  RunSignals& signals_;
  config::Recipe saved_recipe_;  // with the keys that a continued adapter decides
  // This and the members below are set on the first rank alone. logs_ comes after it, so that the logs close
  // before the folder that they lie in is cleared.
  std::optional<io::ResultFolder> result_;
  bool has_older_ = false;
  bool replaces_older_ = false;    // what output_dir holds is of another run
  bool owns_checkpoints_ = false;  // the checkpoints in output_dir are this run's
  std::string newest_;             // name of this run's newest checkpoint; may be empty
  int64_t resumed_step_ = 0;       // after which this run goes on; 0 from the beginning
  std::unique_ptr<RunLogs> logs_;
};

}  // namespace tessera::train
