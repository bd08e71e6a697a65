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

// Rows in the order in which a run takes them, a row perhaps several times.
struct DrawnRows {
  RowSet rows;
  PackPlan sequences;  // of places in `rows`
};

// Deals sequences of prepared rows: each dataset gives its own in the order that a Loader of it alone has,
// and begins again behind its last one.
class CurriculumLoader : public MixedLoader {
 public:
  // `rows`: of `config`'s datasets. `options`: grouping is not looked at. Throws Error(Config) for what is no
  // map of weights.
  CurriculumLoader(const RowSet& rows, const config::DataConfig& config, const LoaderOptions& options);

  // The sequences that come next, to look at. They are used up.
  DrawnRows sample(int64_t num_sequences);

 private:
  SequenceCounts take(size_t source, MicroBatch* batch) override;
  // The pass, and the number of the next sequence as the record.
  StreamPlace place_of(size_t source) const override;
  void seek_source(size_t source, const StreamPlace& place, bool takes_other_data) override;

  std::vector<Loader> sources_;  // one sequence a step
};

// The steps of a training on these rows: of a Loader, or where an entry has `weight_from_step`, of a
// CurriculumLoader.
std::unique_ptr<StepSource> open_loader(const RowSet& rows, const config::DataConfig& config,
                                        const LoaderOptions& options);

}  // namespace tessera::data
