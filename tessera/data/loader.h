// Deals the rows that each rank trains on in each step.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/data/batch.h"
#include "tessera/data/packing.h"
#include "tessera/data/row_store.h"
#include "tessera/data/step_source.h"

namespace tessera::data {

struct LoaderOptions {
  int64_t dp_rank = 0;
  int64_t dp_size = 1;
  int64_t micro_batch_size = 1;   // sequences in a rank's micro-batch
  int64_t accumulation = 1;       // micro-batches of a rank in a step
  int64_t sequence_len = 512;     // tokens that a packed sequence has room for
  bool packing = false;           // a sequence holds several rows; else one
  bool packs_in_order = false;    // a sequence holds neighbours; else rows that fill it well
  bool shuffle = true;            // a new order every epoch; else the order of the rows
  bool groups_by_length = false;  // if shuffled, samples of like length become neighbours
  uint64_t seed = 42;
  std::string kept_in = {};  // the folder that keeps the packing (kept_plan.h); empty: it is made anew

  int64_t samples_per_step() const { return dp_size * accumulation * micro_batch_size; }
};

// Deals prepared rows to ranks. A sample is a sequence. The order of an epoch's samples is a function of
// (seed, epoch) alone, also where they are grouped by length: then each of at least four parts of the
// shuffled epoch, of at most 2048 samples, is sorted from long to short, and the longest sample of all comes
// first. A step takes the next dp_size * accumulation * micro_batch_size of them, micro_batch_size for each
// micro-batch of each rank in turn. Every rank holds all rows, so none has to ask others.
class Loader : public StepSource {
 public:
  // Throws Error(Data) if there are no rows. With packing, each row must have 1 to sequence_len tokens.
  Loader(RowSet rows, const LoaderOptions& options);

  // Number of sequences of an epoch.
  int64_t num_samples() const { return plan_.size(); }
  int64_t steps_per_epoch() const override;
  int64_t samples_per_step() const override { return options_.samples_per_step(); }
  std::vector<std::string> datasets() const override;
  // Number of tokens divided by the room of all sequences, which is sequence_len each; 1 without packing.
  double packing_efficiency() const { return efficiency_; }

  // Returns the next step, and goes on with the next epoch at the end of one. Throws what RowStore::check()
  // throws.
  Step next_step() override { return next_step(true); }
  // Returns the next step. If `makes_batches` is false, no row is read, and the step has no micro-batches.
  Step next_step(bool makes_batches);
  Cursor cursor() const override { return cursor_; }
  // A cursor beyond the last sample stands for the beginning of the next epoch if `takes_other_data` is set.
  void seek(const Cursor& cursor, bool takes_other_data = false) override;

  const RowSet& rows() const { return rows_; }
  // Returns the positions in rows() of the rows that make up sequence `sample`, counted in the order of the
  // current epoch.
  std::span<const int64_t> rows_of_sample(int64_t sample) const { return plan_.sequence(order_[sample]); }

 private:
  void order_epoch();
  void group_by_length();
  int64_t length_of_sample(int64_t sample) const;
  bool has_several() const { return datasets_.size() > 1; }
  int64_t dataset_of(int64_t place) const;
  // Returns how many labels the row of this place has in the current epoch.
  int64_t label_count(int64_t place) const;
  // Appends the labels of the row of this place, whose tokens begin at `start` of the batch, and what goes
  // with them; the masks show other tokens there.
  void add_labels(int64_t place, size_t start, MicroBatch& batch) const;
  MicroBatch make_micro_batch(int64_t begin_sample, int64_t end_sample) const;

  RowSet rows_;
  LoaderOptions options_;
  std::vector<int64_t> datasets_;  // numbers in the store of the datasets that rows come from, ascending
  PackPlan plan_;
  double efficiency_ = 1.0;
  std::vector<int64_t> order_;  // sequences of plan_, in the order of the current epoch
  int64_t ordered_epoch_ = -1;
  Cursor cursor_;
};

// Returns a permutation of 0 ... size - 1 that is a function of (seed, stream, step) alone.
std::vector<int64_t> random_order(int64_t size, uint64_t seed, const char* stream, uint64_t step = 0);

}  // namespace tessera::data
