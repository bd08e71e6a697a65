// Splits normalised text into the words that the model sees.
#pragma once

#include <memory>
#include <optional>
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

enum class PrependScheme { Always, First, Never };

// SentencePiece's spelling of spaces: each becomes `replacement`, and a piece that does not start with one
// gets one (always, or only if the piece starts the whole text, or never).
class Metaspace {
 public:
  Metaspace(std::string replacement, PrependScheme scheme);

  PrependScheme scheme() const { return scheme_; }
  // Respells the piece. `starts_text` tells that it stands at the beginning of the text that was given to
  // encode.
  void apply(AlignedText& piece, bool starts_text) const;

 private:
  std::string replacement_;
  PrependScheme scheme_;
  std::unique_ptr<Normalizer> replace_, prepend_;
};

// The stages in order, each applied to every piece of the stage before; then the byte-level step, if there is
// one.
struct PreTokenizer {
  // A stage respells spaces, if it has a Metaspace, and then cuts.
  struct Stage {
    std::optional<Metaspace> metaspace;
    std::vector<std::unique_ptr<Splitter>> splitters;

    // Calls `sink` with the byte range [begin, end) of each piece; none is empty.
    void for_each_piece(std::string_view text, RangeSink sink) const;
  };

  std::vector<Stage> stages = std::vector<Stage>(1);  // never empty
  // Spells bytes in the byte-level alphabet. The two options below hold only then.
  bool byte_level = false;
  bool add_prefix_space = false;  // a piece that does not start with a space gets one
  bool use_gpt2_pattern = false;

  // Returns whether a piece's spelling depends on its position in the original text after the text was
  // rewritten, so that origins must be tracked.
  bool needs_origins(bool has_normalizer) const;
};

}  // namespace tessera::text
