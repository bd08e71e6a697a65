// Counts of what became of a dataset's records.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
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
  int64_t merged_borders =
      0;  // records in which a token holds the end of a prompt and the start of an answer
  int64_t final_questions = 0;  // records that end with no answer, where the last answer alone is trained
  std::vector<std::string> merged_places;        // file:line of the first kMaxPlaces of `merged_borders`
  std::map<std::string, int64_t> unread_fields;  // messages by field that the chat template does not read

  static constexpr size_t kMaxPlaces = 3, kMaxFields = 20;

  DatasetStats& operator+=(const DatasetStats& other);
  // Counts messages with a field that the chat template does not read. Only the first kMaxFields are kept.
  void note_unread(const std::string& field, int64_t count);
  // Returns the last two members as text, and sets them from such a text.
  std::string details() const;
  void set_details(const std::string& text);
};

// All counts, for what keeps or sends them.
inline constexpr int64_t DatasetStats::*kStatCounts[] = {&DatasetStats::records,
                                                         &DatasetStats::bad_records,
                                                         &DatasetStats::blank_lines,
                                                         &DatasetStats::rows,
                                                         &DatasetStats::tokens,
                                                         &DatasetStats::label_tokens,
                                                         &DatasetStats::end_labels,
                                                         &DatasetStats::untrained_ends,
                                                         &DatasetStats::repeated_ends,
                                                         &DatasetStats::own_ends,
                                                         &DatasetStats::control_texts,
                                                         &DatasetStats::longest,
                                                         &DatasetStats::dropped_long,
                                                         &DatasetStats::truncated,
                                                         &DatasetStats::cut_tokens,
                                                         &DatasetStats::dropped_short,
                                                         &DatasetStats::dropped_unlabelled,
                                                         &DatasetStats::merged_borders,
                                                         &DatasetStats::final_questions};
static_assert(sizeof(DatasetStats) == 2 * sizeof(std::string) + std::size(kStatCounts) * sizeof(int64_t) +
                                          sizeof(DatasetStats::merged_places) +
                                          sizeof(DatasetStats::unread_fields),
              "a count that is not listed");

// Returns warnings about a dataset whose rows will not teach a model to stop, or teach it to stop twice: ends
// that are not trained, as with a template whose control tokens the tokenizer lacks, and ends that are
// doubled. Also warns of records that spell control tokens, of prompts that share a token with their answers,
// of conversations that end without an answer, and of fields that the chat template does not read.
std::vector<std::string> data_warnings(const DatasetStats& stats);

}  // namespace tessera::data
