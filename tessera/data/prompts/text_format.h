// Makes prompts by filling fields into a text.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/config/data_config.h"
#include "tessera/data/prompts/encode.h"
#include "tessera/text/tokenizer/tokenizer.h"

namespace tessera::data {

// A text that knows which of its bytes came from the data: control tokens may stand in all others only.
struct MarkedText {
  std::string text;
  std::vector<text::ByteSpan> contents;  // ranges of `text`, ascending, disjoint, none empty

  void add_scaffold(std::string_view piece) { text += piece; }
  void add_content(std::string_view piece);
};

// Returns the ids of a marked text with the asked ends. An empty text gives no ids, and no ends. No token but
// an added one reaches over one of `cuts`.
std::vector<int32_t> encode_marked(const text::Tokenizer& tokenizer, const MarkedText& marked,
                                   DocumentEnds ends, std::span<const int64_t> cuts = {});

// Ids of a prompt and its answer as one text with BOS and EOS. The answer's begin at `answer`, which is where
// they differ from those of the prompt alone. If the prompt's are no start of them, `merges` is set: a token
// holds the end of the prompt and the start of the answer.
struct JoinedIds {
  std::vector<int32_t> ids;
  size_t answer = 0;
  bool merges = false;
};
// Encodes both. If `splits`, the text is cut behind the prompt where a token would reach over.
JoinedIds encode_joined(const text::Tokenizer& tokenizer, const MarkedText& prompt, std::string_view answer,
                        bool splits);
// Returns the row, in which the answer is trained, and the prompt with `trains_prompt`.
Row joined_row(const JoinedIds& joined, bool trains_prompt);

// A text with places such as {instruction}; {{ and }} stand for braces, as in Python's str.format.
class TextFormat {
 public:
  using Lookup = std::function<std::string_view(std::string_view name)>;

  // `key` names the text in errors. Throws Error(Config) at the dataset's entry for a brace alone.
  TextFormat(std::string_view format, const std::string& key, const config::DatasetConfig& dataset);

  // Throws Error(Config) at the entry for a place that is not among `names`.
  void check_names(const std::vector<std::string>& names) const;
  // Appends the filled text to `out`; the values are marked as content.
  void fill(const Lookup& value_of, MarkedText& out) const;
  std::string fill(const Lookup& value_of) const;
  bool is_empty() const { return pieces_.empty(); }

 private:
  struct Piece {
    std::string text;  // literal text, or the name of a place
    bool is_place = false;
  };
  std::vector<Piece> pieces_;
  std::string key_, source_file_;
  int64_t source_line_ = 0;
};

}  // namespace tessera::data
