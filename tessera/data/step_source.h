// Where a training takes its steps from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/data/batch.h"

namespace tessera::data {

// How far a dataset is read that is streamed (stream/document_stream.h). Its documents come in windows: the
// place is that of a window's first record, and how much of the window is used up.
struct StreamPlace {
  int64_t pass = 0;      // over all files
  int64_t file = 0;      // in the order of the pass
  int64_t record = 0;    // of the file
  int64_t index = 0;     // of the record, in the pass
  int64_t line = 1;      // of the record before it, as RawRecord has it
  int64_t offset = 0;    // likewise
  int64_t document = 0;  // of the window, in the order of their use
  int64_t token = 0;     // of the document

  bool operator==(const StreamPlace&) const = default;
};

// Where the data stand between two steps. Says nothing of ranks: any number of them can go on from it.
struct Cursor {
  int64_t epoch = 0;
  int64_t sample = 0;                     // sequences of the epoch that are consumed
  std::vector<StreamPlace> streams = {};  // of streamed datasets

  bool operator==(const Cursor&) const = default;
};

struct Step {
  // This rank's micro-batches: the same number on every rank. Where the epoch's last samples do not go round,
  // some are empty (no tokens, no documents).
  std::vector<MicroBatch> micro_batches;
  int64_t tokens = 0;        // of all ranks and micro-batches
  int64_t label_tokens = 0;  // of all ranks and micro-batches
  int64_t token_pairs = 0;   // of one document: the sum of the documents' squared lengths
  // The label tokens of each of StepSource::datasets(); empty where there is one.
  std::vector<int64_t> dataset_label_tokens;
  int64_t samples = 0;  // sequences, of all ranks
  int64_t epoch = 0;
  bool ends_epoch = false;
  double epochs_done = 0.0;  // with this step: passes over the data, whole ones of a stream
  Cursor next;               // where the step after this one starts: what a checkpoint stores
};

// Deals sequences to ranks. Which ones a step takes is a function of its place in the data alone; the ranks
// share them out.
class StepSource {
 public:
  virtual ~StepSource() = default;

  // The next step; there is always one. Throws Error(Data) and Error(Storage) for rows that cannot be had.
  virtual Step next_step() = 0;
  virtual Cursor cursor() const = 0;
  // Throws Error(Checkpoint) for a cursor outside the data. With `takes_other_data`, one of other data is
  // made to fit instead.
  virtual void seek(const Cursor& cursor, bool takes_other_data = false) = 0;

  // Names of the datasets that rows come from.
  virtual std::vector<std::string> datasets() const = 0;
  // Sequences of a step, of all ranks; the last step of an epoch may have fewer.
  virtual int64_t samples_per_step() const = 0;
  // 0 where nobody knows.
  virtual int64_t steps_per_epoch() const = 0;
};

}  // namespace tessera::data
