// Regular expressions of tokenizer files that have no scanner of their own, run by ICU under limits.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tessera/text/tokenizer/patterns.h"

namespace tessera::text {

// Immutable; several threads may call for_each_match().
class Regex {
 public:
  // Compiles an expression. Throws Error(Model) for one that ICU does not understand, and for one that ICU
  // would understand differently from Oniguruma, the dialect of tokenizer files. `place` names the expression
  // in messages.
  Regex(std::string_view pattern, std::string place);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // Calls `sink` with the byte range of every match, in order; an empty match counts only where no match
  // ends. `text` must be valid UTF-8. Throws Error(Model) when the search takes more processor time than a
  // second plus a second per MiB, since the expression then backtracks without end.
  void for_each_match(std::string_view text, RangeSink sink) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::text
