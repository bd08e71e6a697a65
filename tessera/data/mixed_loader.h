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

// Counts of one sequence.
struct SequenceCounts {
  int64_t tokens = 0;
  int64_t label_tokens = 0;
  int64_t token_pairs = 0;  // pairs within a document, as in Step
};

// Deals sequences without end. Each is the next one of a source, which is drawn by the weights that hold at
// the sequence's step (StepMix). A source is a dataset that is there; a subclass has the sources.
class MixedLoader : public StepSource {
 public:
  Step next_step() override;
  Cursor cursor() const override;
  // A cursor of other datasets lets all of them begin anew if `takes_other_data` is set.
  void seek(const Cursor& cursor, bool takes_other_data = false) override;

  std::vector<std::string> datasets() const override;
  int64_t samples_per_step() const override { return options_.samples_per_step(); }
  int64_t steps_per_epoch() const override { return 0; }

 protected:
  // There is one source for each dataset for which `is_there` is true; errors call the sources by `noun`.
  // Throws Error(Config) for a weight_from_step that is no map from steps to weights.
  MixedLoader(const std::vector<config::DatasetConfig>& datasets, const std::vector<bool>& is_there,
              const LoaderOptions& options, std::string noun);

  // Returns the source of the next sequence, and counts the sequence as dealt.
  size_t draw() { return source_of_entry_[mix_.dataset_of(sample_++)]; }

  // Takes the next sequence of a source, and appends its documents, with labels, positions and starts, to
  // `batch`. `batch` is null for a sequence that belongs to another rank. Returns the counts of the sequence.
  virtual SequenceCounts take(size_t source, MicroBatch* batch) = 0;
  virtual StreamPlace place_of(size_t source) const = 0;
  // Moves a source to `place`. `takes_other_data` means the same as in StepSource::seek().
  virtual void seek_source(size_t source, const StreamPlace& place, bool takes_other_data) = 0;

  const LoaderOptions options_;
  std::vector<std::string> names_;  // names of the sources; the subclass fills it

 private:
  const std::string noun_;
  std::vector<size_t> source_of_entry_;
  const StepMix mix_;
  int64_t sample_ = 0;  // number of sequences dealt so far
};

}  // namespace tessera::data
