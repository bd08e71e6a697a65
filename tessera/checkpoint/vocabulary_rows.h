// A model whose tables of tokens, embedding and output projection, have more or fewer rows than its files
// hold.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/checkpoint/stored_tensors.h"

namespace tessera::checkpoint {

// The rows that the tables of tokens have when they are read. Rows that the files lack are new.
struct VocabularyRows {
  int64_t count = 0;
  // New rows are drawn from a normal distribution: of mean 0 and the model's initializer_range as standard
  // deviation, or, with `are_near_mean`, of the mean of the rows that are there and their covariance times
  // 1e-9 (resize_token_embeddings() of Transformers with mean_resizing). An element's value depends on the
  // seed, the table and the element's place alone.
  bool are_near_mean = false;
  uint64_t seed = 0;
};

// A stored table of a row for each token. Tables of one stream, those that a model ties, get the same new
// rows.
struct VocabularyTable {
  std::string name;    // of the stored tensor, [rows, hidden_size]
  std::string stream;  // decides the random numbers
};

// Returns `files` with the tables cut to, or filled up to, rows.count rows. The other tensors are the same.
// A table that its file keeps in blocks and that changes has no form any more: it is read as plain values.
std::shared_ptr<const StoredTensors> with_vocabulary_rows(std::shared_ptr<const StoredTensors> files,
                                                          const std::vector<VocabularyTable>& tables,
                                                          const VocabularyRows& rows,
                                                          double initializer_range);

// Returns the text of a config.json with this vocab_size, in its text_config if it has one.
std::string with_vocab_size(const std::string& config_json, int64_t vocab_size);

}  // namespace tessera::checkpoint
