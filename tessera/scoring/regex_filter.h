// The filters that find a part of an answer by regular expressions: regex and multi_choice_regex.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/scoring/task_config.h"
#include "tessera/text/python_regex.h"

namespace tessera::scoring {

class RegexFilter {
 public:
  // `step` has one of the two functions, and arguments that problem_of_chain() accepts; `place` names it in
  // messages. Throws Error(Config, "REGEX") for a malformed pattern.
  RegexFilter(const FilterConfig& step, std::string place);

  // Throws Error(Data, "TASK-FILTER") if multi_choice_regex cannot read the choices of the document: its
  // column `choices` must be a list of 1 to 26 texts.
  void check(const Json& document) const;

  // Returns the match of regex_pattern that group_select counts, without white space around it; of several
  // groups, the first that is not empty. Without a match, multi_choice_regex searches the answer for the
  // texts of the document's choices, and then for a letter behind a colon, and returns the letter as "(B)".
  // Returns the fallback if nothing is found. Throws Error(Config, "TASK-FILTER") if group_select counts a
  // match that there is not, and what check() throws.
  std::string apply(const std::string& answer, const Json& document) const;

 private:
  // Returns what `regex` finds in a text; nothing without a match.
  std::optional<std::string> find(const text::PythonRegex& regex, const std::string& text) const;
  // Returns the choice that an answer names; "" if it names none.
  std::string find_choice(const std::string& answer, const Json& document) const;
  // Returns a text without what does not count when choices are searched for.
  std::string comparable(std::string text) const;

  std::string place_;
  text::PythonRegex regex_;
  std::string fallback_;
  int64_t group_select_;
  bool finds_choices_, ignores_case_, ignores_punctuation_;
  std::vector<text::PythonRegex> ignored_;
};

}  // namespace tessera::scoring
