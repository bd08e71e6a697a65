// Prompt types, which make tokenised rows of one record of a dataset.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tessera/config/data_config.h"
#include "tessera/data/batch.h"
#include "tessera/text/chat_template/chat_template.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::data {

// Tells a type's findings about a record, for the counts of its dataset.
struct RecordNotes {
  bool merges_border = false;       // a token holds the end of a prompt and the start of its answer
  bool ends_with_question = false;  // the last message is no answer, where the last answer alone is trained
  std::vector<std::string> unread_fields;  // fields of messages that the chat template does not read
};

struct PromptRecord {
  const nlohmann::ordered_json& fields;  // an object
  // The fields tell whether the record begins and ends its document: a text file longer than one piece is one
  // document in several records.
  bool begins_document = true;
  bool ends_document = true;
  RecordNotes* notes = nullptr;  // filled by tokenize(), unless it is null
};

// Immutable after construction; tokenize() is thread-safe.
class PromptType {
 public:
  virtual ~PromptType() = default;

  // Appends the record's rows, of any length. Throws Error(Data) without a place for a record that lacks a
  // field or holds a wrong one; the caller knows the file and line.
  virtual void tokenize(const PromptRecord& record, std::vector<Row>& rows) const = 0;

  // Returns whether the record brings a BOS or EOS of its own at its ends, so that a second one would stand
  // beside it.
  virtual bool has_own_ends(const PromptRecord& record) const {
    (void)record;
    return false;
  }

  // Returns the ids that close a turn or a document. A dataset that trains none of them teaches a model never
  // to stop.
  virtual std::vector<int32_t> end_tokens() const = 0;
};

struct ClassificationRows;
struct MaskedRows;
struct Seq2SeqRows;

struct PromptContext {
  const config::DataConfig& config;
  const text::Tokenizer* tokenizer = nullptr;          // null: only rows of token ids can be read
  const text::ChatTemplate* chat_template = nullptr;   // the recipe's; the entry may name another
  int64_t vocab_size = 0;                              // ids of pre-tokenised rows must be below this
  std::optional<int64_t> now = std::nullopt;           // RenderOptions::now
  const ClassificationRows* classification = nullptr;  // set with task: classification
  const Seq2SeqRows* seq2seq = nullptr;                // set with task: seq2seq
  const MaskedRows* masked = nullptr;                  // set with task: masked_lm
};

// Makes the entry's prompt type. The caller keeps alive what the arguments refer to. Throws Error(Config) at
// the entry for an unknown type or option, Error(Model) for a tokenizer or a chat template that is needed and
// cannot be had.
std::unique_ptr<PromptType> make_prompt_type(const config::DatasetConfig& dataset,
                                             const PromptContext& context);

// Returns the names that `type:` takes. A blank type, for pre-tokenised rows, is not among them.
std::vector<std::string> prompt_type_names();

// Returns whether the entry's rows are written by a chat template.
bool uses_chat_template(const config::DatasetConfig& dataset);

// Throws Error(Config) at the first entry on whose rows nothing trains yet: preferences, of which only reward
// models learn, and steps with a verdict.
void refuse_unbuilt_objective(const config::DataConfig& config);

}  // namespace tessera::data
