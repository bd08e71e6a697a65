// Splits normalised text into the words that the model sees.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/text/tokenizer/normalizer.h"
#include "tessera/text/tokenizer/patterns.h"

namespace tessera::text {

// Treatment of a delimiter, under the names that `tokenizers` gives.
enum class SplitBehavior { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };

// One step, which cuts a text into pieces. Thread-safe.
class Splitter {
 public:
  virtual ~Splitter() = default;
  // Calls `sink` with the non-empty pieces in order; they need not cover the text. `text` must be valid UTF-8
  // and not empty. Throws Error(Model) if a regular expression runs away.
  virtual void split(std::string_view text, RangeSink sink) const = 0;
};

// Splits at a text or a regular expression. `place` names the pattern in messages.
std::unique_ptr<Splitter> make_split(const std::string& pattern, bool is_regex, SplitBehavior behavior,
                                     bool invert, const std::string& place);
std::unique_ptr<Splitter> make_digits(bool individual);
// Keeps the matches of \w+|[^\w\s]+.
std::unique_ptr<Splitter> make_whitespace();
std::unique_ptr<Splitter> make_whitespace_split();
// Splits at punctuation, as `tokenizers` defines it for BERT.
std::unique_ptr<Splitter> make_punctuation(SplitBehavior behavior);
// Drops white space, and isolates punctuation.
std::unique_ptr<Splitter> make_bert_split();
// Cuts where the script changes. Text before the first character that has a script is dropped, as in
// `tokenizers`.
std::unique_ptr<Splitter> make_script_split();
// Cuts into pieces of `length` characters.
std::unique_ptr<Splitter> make_fixed_length(size_t length);

enum class PrependScheme { Always, First, Never };

// Rewrites a piece before it is cut. Thread-safe.
class Respelling {
 public:
  virtual ~Respelling() = default;
  // `starts_text` tells that the piece stands at the beginning of the text that was given to encode.
  virtual void apply(AlignedText& piece, bool starts_text) const = 0;
  // Returns whether apply() looks at `starts_text`.
  virtual bool needs_start() const { return false; }
};

// SentencePiece's spelling of spaces: each becomes `replacement`, and a piece that does not start with one
// gets one (always, or only if the piece starts the whole text, or never).
std::unique_ptr<Respelling> make_metaspace(std::string replacement, PrependScheme scheme);
// Puts a space before a piece that has none there.
std::unique_ptr<Respelling> make_space_prefix();
// Spells each byte by its character of the byte-level alphabet.
std::unique_ptr<Respelling> make_byte_spelling();

// The stages in order, each applied to every piece of the stage before; then the byte-level step, if there is
// one.
struct PreTokenizer {
  // A stage respells the piece, if it says so, and then cuts.
  struct Stage {
    std::unique_ptr<Respelling> respelling;  // may be null
    std::vector<std::unique_ptr<Splitter>> splitters;

    // Calls `sink` with the byte range [begin, end) of each piece; none is empty.
    void for_each_piece(std::string_view text, RangeSink sink) const;
  };

  std::vector<Stage> stages = std::vector<Stage>(1);  // never empty
  // The model takes bytes, which it spells in the byte-level alphabet: ByteLevel is the last step. The two
  // options below hold only then.
  bool byte_level = false;
  bool add_prefix_space = false;  // a piece that does not start with a space gets one
  bool use_gpt2_pattern = false;

  // Returns whether a piece's spelling depends on its position in the original text after the text was
  // rewritten, so that origins must be tracked.
  bool needs_origins(bool has_normalizer) const;
};

}  // namespace tessera::text
