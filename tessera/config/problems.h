// All that is wrong with a recipe, so that its writer learns of everything at once.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/config/recipe.h"
#include "tessera/core/error.h"

namespace tessera::config {

class Problems {
 public:
  // Runs `check`. An Error of kind Config that it throws is kept as a problem of the native key `key`,
  // written at `place`; others pass.
  template <class Check>
  void attempt(std::string_view key, const KeyPlace& place, Check&& check) {
    try {
      std::forward<Check>(check)();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Config) throw;
      add(key, place, error);
    }
  }
  void add(std::string_view key, const KeyPlace& place, const Error& error);
  // Kept too; said by settle() where nothing is refused.
  void warn(std::string text) { warnings_.push_back(std::move(text)); }

  // Whether `key` has a problem: what would follow from it is none of the user's.
  bool has(std::string_view key) const { return refused_.contains(key); }

  // Throws one Error whose text has a line for every problem, in the order of the file; its kind and code are
  // the first one's. Where there is none, writes the warnings.
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
