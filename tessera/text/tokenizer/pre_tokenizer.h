// Splitting of normalised text into the words that the model sees.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/text/tokenizer/normalizer.h"
#include "tessera/text/tokenizer/patterns.h"

namespace tessera::text {

// What becomes of a delimiter, as `tokenizers` names it.
enum class SplitBehavior { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };

// One step: cuts a text into pieces. Thread-safe.
class Splitter {
 public:
  virtual ~Splitter() = default;
  // Calls `sink` with the non-empty pieces in order; they need not cover the text. `text` is valid UTF-8 and
  // not empty. Throws Error(Model) when a regular expression runs away.
  virtual void split(std::string_view text, RangeSink sink) const = 0;
};

// `place` names the pattern in messages.
std::unique_ptr<Splitter> make_split(const std::string& pattern, bool is_regex, SplitBehavior behavior,
                                     bool invert, const std::string& place);
std::unique_ptr<Splitter> make_digits(bool individual);
// \w+|[^\w\s]+
std::unique_ptr<Splitter> make_whitespace();
std::unique_ptr<Splitter> make_whitespace_split();

enum class PrependScheme { Always, First, Never };

// SentencePiece's spelling of spaces: each becomes `replacement`, and a piece that does not start with one
// gets one, always or if it starts the whole text.
class Metaspace {
 public:
  Metaspace(std::string replacement, PrependScheme scheme);

  PrependScheme scheme() const { return scheme_; }
  // `starts_text`: the piece stands at the beginning of what was given to encode.
  void apply(AlignedText& piece, bool starts_text) const;

 private:
  std::string replacement_;
  PrependScheme scheme_;
  std::unique_ptr<Normalizer> replace_, prepend_;
};

// The stages one after the other, each on every piece of the one before; then the byte-level step if there is
// one.
struct PreTokenizer {
  // Spells spaces anew, if it has a Metaspace, and then cuts.
  struct Stage {
    std::optional<Metaspace> metaspace;
    std::vector<std::unique_ptr<Splitter>> splitters;

    // Receives [begin, end) of a piece of the text, which is not empty.
    void for_each_piece(std::string_view text, RangeSink sink) const;
  };

  std::vector<Stage> stages = std::vector<Stage>(1);  // never empty
  // The model sees bytes in the byte-level alphabet. The two options hold only then.
  bool byte_level = false;
  bool add_prefix_space = false;  // a piece that does not start with a space gets one
  bool use_gpt2_pattern = false;

  // Whether where a piece stood in the original text decides about its spelling, although the text has been
  // rewritten since.
  bool needs_origins(bool has_normalizer) const;
};

}  // namespace tessera::text
