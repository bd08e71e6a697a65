// The interface from which a training takes its steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/data/batch.h"

namespace tessera::data {

// A place in a streamed dataset (stream/document_stream.h). Its documents are read in windows: `pass` to
// `offset` tell the first record of a window, `document` and `token` how much of the window is used up.
struct StreamPlace {
  int64_t pass = 0;      // number of the pass over all files
  int64_t file = 0;      // number of the file, in the order of the pass
  int64_t record = 0;    // number of the record in its file
  int64_t index = 0;     // number of the record in the pass
  int64_t line = 1;      // RawRecord::line of the record before it
  int64_t offset = 0;    // RawRecord::byte_offset of the record before it
  int64_t document = 0;  // number of the document in the window, in the order of use
  int64_t token = 0;     // number of the next token in the document

  bool operator==(const StreamPlace&) const = default;
};

// A place in the data between two steps. It does not depend on ranks: any number of them can go on from it.
struct Cursor {
  int64_t epoch = 0;
  int64_t sample = 0;                     // sequences of the epoch that are consumed
  std::vector<StreamPlace> streams = {};  // places of a MixedLoader's sources

  bool operator==(const Cursor&) const = default;
};

struct Step {
  // This rank's micro-batches: the same number on every rank. If the epoch's last samples do not suffice for
  // all ranks, some are empty (no tokens, no documents).
  std::vector<MicroBatch> micro_batches;
  int64_t tokens = 0;        // of all ranks and micro-batches
  int64_t label_tokens = 0;  // of all ranks and micro-batches
  int64_t token_pairs = 0;   // pairs within a document: the sum of the documents' squared lengths
  // The label tokens of each of StepSource::datasets(); empty if there is one dataset.
  std::vector<int64_t> dataset_label_tokens;
  int64_t samples = 0;  // number of sequences, of all ranks
  int64_t epoch = 0;
  bool ends_epoch = false;
  double epochs_done = 0.0;  // passes over the data with this step; whole ones for a stream
  Cursor next;               // the place where the step after this one starts: what a checkpoint stores
};

// Deals sequences to ranks. The sequences of a step are a function of its place in the data alone; the ranks
// share them out.
class StepSource {
 public:
  virtual ~StepSource() = default;

  // Returns the next step; there is always one. Throws Error(Data) and Error(Storage) for rows that cannot be
  // had.
  virtual Step next_step() = 0;
  virtual Cursor cursor() const = 0;
  // Throws Error(Checkpoint) for a cursor outside the data. With `takes_other_data`, a cursor of other data
  // is made to fit instead.
  virtual void seek(const Cursor& cursor, bool takes_other_data = false) = 0;

  // Names of the datasets that rows come from; the names are empty if there is one dataset.
  virtual std::vector<std::string> datasets() const = 0;
  // Number of sequences in a step over all ranks; the last step of an epoch may have fewer.
  virtual int64_t samples_per_step() const = 0;
  // Steps of an epoch; 0 if this is not known.
  virtual int64_t steps_per_epoch() const = 0;
};

}  // namespace tessera::data
