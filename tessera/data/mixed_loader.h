// Steps of several datasets, in shares that change as the run goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/config/data_config.h"
#include "tessera/data/loader.h"
#include "tessera/data/mix.h"
#include "tessera/data/step_source.h"

namespace tessera::data {

// Of a sequence.
struct SequenceCounts {
  int64_t tokens = 0;
  int64_t label_tokens = 0;
  int64_t token_pairs = 0;  // as of a Step
};

// Deals sequences without end. Each is the next one of a source, a dataset that is there, drawn by the
// weights that hold at its step (StepMix). A subclass has the sources.
class MixedLoader : public StepSource {
 public:
  Step next_step() override;
  Cursor cursor() const override;
  // One of other datasets begins them anew.
  void seek(const Cursor& cursor, bool takes_other_data = false) override;

  std::vector<std::string> datasets() const override;
  int64_t samples_per_step() const override { return options_.samples_per_step(); }
  int64_t steps_per_epoch() const override { return 0; }

 protected:
  // A source for each of the datasets that `is_there` has; `noun` is what errors call them. Throws
  // Error(Config) for what is no map of weights.
  MixedLoader(const std::vector<config::DatasetConfig>& datasets, const std::vector<bool>& is_there,
              const LoaderOptions& options, std::string noun);

  // The source of the sequence that comes next, which is used up.
  size_t draw() { return source_of_entry_[mix_.dataset_of(sample_++)]; }

  // Takes the next sequence of a source, and appends its documents, with labels, positions and starts, to
  // `batch`; null for a sequence that is another rank's.
  virtual SequenceCounts take(size_t source, MicroBatch* batch) = 0;
  virtual StreamPlace place_of(size_t source) const = 0;
  // As StepSource::seek().
  virtual void seek_source(size_t source, const StreamPlace& place, bool takes_other_data) = 0;

  const LoaderOptions options_;
  std::vector<std::string> names_;  // of the sources; the subclass fills it

 private:
  const std::string noun_;
  std::vector<size_t> source_of_entry_;
  const StepMix mix_;
  int64_t sample_ = 0;  // sequences given
};

}  // namespace tessera::data
