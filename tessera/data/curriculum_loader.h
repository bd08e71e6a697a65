// Prepared rows of several datasets, in shares that change as the run goes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/config/data_config.h"
#include "tessera/data/loader.h"
#include "tessera/data/mix.h"
#include "tessera/data/step_source.h"

namespace tessera::data {

// Deals sequences without end. Each is of one dataset, drawn by the weights that hold at its step (StepMix),
// and each dataset gives its own in the order that a Loader of it alone has, and begins again behind its last
// one.
class CurriculumLoader : public StepSource {
 public:
  // `rows`: of `config`'s datasets. `options`: grouping is not looked at. Throws Error(Config) for what is no
  // map of weights.
  CurriculumLoader(const RowSet& rows, const config::DataConfig& config, const LoaderOptions& options);

  Step next_step() override;
  // Of a dataset: the pass, and the number of the next sequence as the record.
  Cursor cursor() const override;
  // One of other datasets begins them anew.
  void seek(const Cursor& cursor, bool takes_other_data = false) override;

  std::vector<std::string> datasets() const override;
  int64_t samples_per_step() const override {
    return options_.dp_size * options_.accumulation * options_.micro_batch_size;
  }
  int64_t steps_per_epoch() const override { return 0; }

 private:
  struct Source {
    std::string name;
    Loader sequences;  // one a step
  };

  const LoaderOptions options_;
  std::vector<Source> sources_;  // that have rows
  std::vector<size_t> source_of_entry_;
  const StepMix mix_;
  int64_t sample_ = 0;  // sequences given
};

// The steps of a training on these rows: of a Loader, or where an entry has `weight_from_step`, of a
// CurriculumLoader.
std::unique_ptr<StepSource> open_loader(const RowSet& rows, const config::DataConfig& config,
                                        const LoaderOptions& options);

}  // namespace tessera::data
