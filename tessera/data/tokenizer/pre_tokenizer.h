// Splitting of normalised text into the words that the model sees.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/data/tokenizer/patterns.h"

namespace tessera::data {

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

// All steps, then the byte-level one if there is one.
struct PreTokenizer {
  std::vector<std::unique_ptr<Splitter>> steps;
  // The model sees bytes in the byte-level alphabet. The two options hold only then.
  bool byte_level = false;
  bool add_prefix_space = false;  // a piece that does not start with a space gets one
  bool use_gpt2_pattern = false;

  // Receives [begin, end) of a piece of the text.
  void for_each_piece(std::string_view text, RangeSink sink) const;
};

}  // namespace tessera::data
