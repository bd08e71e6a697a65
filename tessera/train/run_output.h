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
#include "tessera/train/run_signals.h"
#include "tessera/train/setup.h"

namespace tessera::train {

// The first rank of `world` writes it; all calls are collective, and throw on every rank what went wrong on
// any. An older result stays untouched until save() is done.
class RunOutput {
 public:
  // Before anything that takes time, also before the recipe's dtype is known. Throws what ResultFolder
  // throws. `signals`, which outlive this, are told what to say.
  RunOutput(const config::Recipe& recipe, std::shared_ptr<comm::Communicator> world, RunSignals& signals);
  ~RunOutput();

  // Once the first step is sure to come: recipe.yaml, of `recipe` as resolved, and the logs, which go on
  // where those of `checkpoint` end, if there is one. `trained` and `tokenizer` are what save() will be
  // given. Throws Error(Storage) where there is no space for the result and a checkpoint of
  // `checkpoint_bytes`.
  void begin(const config::Recipe& recipe, const TrainedModel& trained,
             const std::optional<text::Tokenizer>& tokenizer, const checkpoint::ShardedCheckpoint* checkpoint,
             int64_t checkpoint_bytes);
  // Those who write what the run tells; none but on the first rank. For use after begin().
  std::vector<std::unique_ptr<Reporter>> reporters(int64_t total_steps);
  // What the logs hold by now, for a checkpoint; none but on the first rank.
  std::vector<std::pair<std::string, std::string>> logs() const;
  // A checkpoint of this step and run is in place in output_dir: those that it outdates go, of which the one
  // of `best_step` (0 for none) is none. What cannot be removed is warned of. Not collective; safe on another
  // thread.
  void remove_outdated(int64_t step, const std::string& run, int64_t best_step) const;
  // From now on, after step `current`, it is what an interrupt leaves, and what save() leaves beside the
  // result. Not collective.
  void has_saved(int64_t step, int64_t current);
  // What was trained, in place, beside the run's checkpoints.
  void save(const TrainedModel& trained, const checkpoint::BaseFiles& base,
            const std::optional<text::Tokenizer>& tokenizer);

 private:
  std::string what_stays() const;
  void add_trackers(std::vector<std::unique_ptr<Reporter>>& reporters);
  void write_recipe() const;
  void put_logs_back();
  void require_space(const TrainedModel& trained, const std::optional<text::Tokenizer>& tokenizer,
                     int64_t more_bytes) const;

  config::Recipe recipe_;
  std::shared_ptr<comm::Communicator> world_;
  RunSignals& signals_;
  config::Recipe saved_recipe_;  // with the keys that a continued adapter decides
  // Of the first rank. The logs close before the folder that they lie in is cleared.
  std::optional<io::ResultFolder> result_;
  bool has_older_ = false;
  bool owns_checkpoints_ = false;  // those in output_dir are this run's
  std::string newest_;             // checkpoint of this run
  int64_t resumed_step_ = 0;       // after which it goes on
  std::unique_ptr<RunLogs> logs_;
};

}  // namespace tessera::train
