// Regular expressions as Python's `re` understands them, run by ICU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::text {

// Immutable. Texts must be valid UTF-8. A search that backtracks without end is refused after some seconds
// with Error(Config, "REGEX-LIMIT").
class PythonRegex {
 public:
  // Compiles a pattern for re.compile(). `place` names it in messages. Throws Error(Config, "REGEX") for one
  // that ICU does not understand.
  PythonRegex(std::string_view pattern, std::string place);
  PythonRegex(PythonRegex&&) noexcept;
  PythonRegex& operator=(PythonRegex&&) noexcept;
  ~PythonRegex();

  // Returns re.findall(): for each match its whole text if the pattern has no group, else the texts of its
  // groups, which are empty where a group took no part.
  std::vector<std::vector<std::string>> find_all(std::string_view text) const;
  bool has_groups() const;
  // Returns re.sub(): all matches, or the first `count` if it is not 0, become `replacement`, in which \1 and
  // \g<1> stand for groups.
  std::string replace(std::string_view text, std::string_view replacement, int64_t count = 0) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::text
