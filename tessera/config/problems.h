// Collects everything that is wrong with a recipe, so that its writer learns of all mistakes at once.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/core/error.h"

namespace tessera::config {

class Problems {
 public:
  // Runs `check`. Keeps an Error of kind Config that it throws as a problem of the native key `key`, written
  // at `place`; other exceptions pass through.
  template <class Check>
  void attempt(std::string_view key, const SourcePlace& place, Check&& check) {
    try {
      std::forward<Check>(check)();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Config) throw;
      add(key, place, error);
    }
  }
  // Returns the error as it is kept, until the next call.
  Error& add(std::string_view key, const SourcePlace& place, const Error& error);
  // Keeps a warning, which settle() writes if there is no problem.
  void warn(std::string text) { warnings_.push_back(std::move(text)); }

  // Returns whether no problem has been found yet.
  bool empty() const { return problems_.empty(); }
  // Returns whether `key` already has a problem. Checks that read such a key are left out, since what they
  // would report only follows from that problem.
  bool has(std::string_view key) const { return refused_.contains(key); }

  // If there are problems, throws one Error whose text has a line for each, in the order of the files; its
  // kind and code are those of the first. Otherwise writes the warnings.
  void settle();

 private:
  struct Problem {
    size_t file = 0;  // index into files_
    int64_t line = 0, column = 0;
    Error error;
  };
  std::vector<Problem> problems_;
  std::vector<std::string> files_, warnings_;
  std::set<std::string, std::less<>> refused_;
};

}  // namespace tessera::config
