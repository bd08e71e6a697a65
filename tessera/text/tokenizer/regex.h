// Regular expressions of tokenizer files that have no scanner of their own, run by ICU under limits.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tessera/text/tokenizer/patterns.h"

namespace tessera::text {

// Immutable; `for_each_match` may be called from several threads.
class Regex {
 public:
  // Throws Error(Model) for an expression that ICU does not understand, and for one that it would
  // understand differently from Oniguruma, the dialect of tokenizer files. `place` names the expression
  // in messages.
  Regex(std::string_view pattern, std::string place);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // Calls `sink` with the byte range of every match, in order; an empty one only where no match ends.
  // `text` must be valid UTF-8. A search that takes more than a second plus a second for each MiB of
  // processor time is given up with Error(Model): the expression backtracks without end.
  void for_each_match(std::string_view text, RangeSink sink) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::text
