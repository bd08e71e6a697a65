// Prepared rows of several datasets, in shares that change as the run goes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/config/data_config.h"
#include "tessera/data/loader.h"
#include "tessera/data/mixed_loader.h"
#include "tessera/data/step_source.h"

namespace tessera::data {

// Rows in the order in which a run takes them. A row may appear several times.
struct DrawnRows {
  RowSet rows;
  PackPlan sequences;  // its items are places in `rows`
};

// Deals sequences of prepared rows. Each dataset gives its own sequences in the order in which a Loader of it
// alone would, and begins again behind the last one.
class CurriculumLoader : public MixedLoader {
 public:
  // Takes rows of the datasets of `config`. options.groups_by_length is ignored. Throws Error(Config) for a
  // weight_from_step that is no map from steps to weights, and Error(Data) if there are no rows.
  CurriculumLoader(const RowSet& rows, const config::DataConfig& config, const LoaderOptions& options);

  // Returns the next `num_sequences` sequences, to look at. They are consumed.
  DrawnRows sample(int64_t num_sequences);

 private:
  SequenceCounts take(size_t source, MicroBatch* batch) override;
  // Returns the pass of a source, and the number of its next sequence as `record`.
  StreamPlace place_of(size_t source) const override;
  void seek_source(size_t source, const StreamPlace& place, bool takes_other_data) override;

  std::vector<Loader> sources_;  // a step of each is one sequence
};

// Returns what deals these rows in a training: a CurriculumLoader if an entry has `weight_from_step`, else a
// Loader.
std::unique_ptr<StepSource> open_loader(const RowSet& rows, const config::DataConfig& config,
                                        const LoaderOptions& options);

}  // namespace tessera::data
