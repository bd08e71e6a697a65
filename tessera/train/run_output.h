// The folder that a run leaves, from the first look at its place to the result in it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/checkpoint/save_folder.h"
#include "tessera/comm/communicator.h"
#include "tessera/config/recipe.h"
#include "tessera/io/result_folder.h"
#include "tessera/text/tokenizer/tokenizer.h"
#include "tessera/train/reporters/end_notice.h"
#include "tessera/train/reporters/reporter.h"
#include "tessera/train/reporters/run_logs.h"
#include "tessera/train/setup.h"

namespace tessera::train {

// The first rank of `world` writes it; all calls are collective, and throw on every rank what went wrong on
// any. An older result stays untouched until save() is done.
class RunOutput {
 public:
  // Before anything that takes time. Throws what ResultFolder throws.
  RunOutput(const config::Recipe& recipe, std::shared_ptr<comm::Communicator> world);

  // Once the first step is sure to come: recipe.yaml and the logs. `trained` and `tokenizer` are what save()
  // will be given. Throws Error(Storage) where there is no space for the result.
  void begin(const TrainedModel& trained, const std::optional<text::Tokenizer>& tokenizer);
  // Those who write what the run tells; none but on the first rank. For use after begin().
  std::vector<std::unique_ptr<Reporter>> reporters(int64_t total_steps);
  // What was trained, in place.
  void save(const TrainedModel& trained, const checkpoint::BaseFiles& base,
            const std::optional<text::Tokenizer>& tokenizer);

 private:
  std::string untouched() const;
  void write_recipe() const;
  void put_logs_back();
  void require_space(const TrainedModel& trained, const std::optional<text::Tokenizer>& tokenizer) const;

  const config::Recipe recipe_;
  std::shared_ptr<comm::Communicator> world_;
  config::Recipe saved_recipe_;  // with the keys that a continued adapter decides
  // Of the first rank. The logs close before the folder that they lie in is cleared.
  std::optional<io::ResultFolder> result_;
  bool has_older_ = false;
  std::optional<EndNotice> end_notice_;
  std::unique_ptr<RunLogs> logs_;
};

}  // namespace tessera::train
