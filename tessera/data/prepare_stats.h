// Counts of what became of a dataset's records.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::data {

// Counts of what became of the records of one dataset entry. Every record and row that was left out is in
// exactly one of the counts for that; all other rows are in `rows`.
struct DatasetStats {
  std::string path, type;
  int64_t records = 0;             // records read; only those that `split` and `shards` leave
  int64_t bad_records = 0;         // records skipped by on_bad_line: skip
  int64_t blank_lines = 0;         // blank lines, which are no records
  int64_t rows = 0;                // rows kept
  int64_t tokens = 0;              // tokens of the kept rows
  int64_t label_tokens = 0;        // positions of the kept rows that are trained
  int64_t end_labels = 0;          // trained end-of-turn and EOS tokens among them
  int64_t untrained_ends = 0;      // rows with a trained turn whose end-of-turn or EOS token is not trained
  int64_t repeated_ends = 0;       // rows in which such a token stands twice in a row
  int64_t own_ends = 0;            // records that bring a BOS or EOS of their own at their ends
  int64_t control_texts = 0;       // records that spell a control token, which stays plain text
  int64_t longest = 0;             // tokens of the longest row, before any was dropped or truncated
  int64_t dropped_long = 0;        // rows above sequence_len, with excess_length_strategy: drop
  int64_t truncated = 0;           // rows cut to sequence_len and kept
  int64_t cut_tokens = 0;          // tokens that truncation took
  int64_t dropped_short = 0;       // rows below min_sample_len
  int64_t dropped_unlabelled = 0;  // rows without (after truncation) a token to train

  DatasetStats& operator+=(const DatasetStats& other);
};

// Returns warnings about a dataset whose rows will not teach a model to stop, or teach it to stop twice: ends
// that are not trained, as with a template whose control tokens the tokenizer lacks, and ends that are
// doubled. Also warns of records that spell control tokens.
std::vector<std::string> data_warnings(const DatasetStats& stats);

}  // namespace tessera::data
