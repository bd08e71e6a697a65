// Collects what is wrong with a set of named things, for one message.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tessera {

class MismatchList {
 public:
  // The kinds of mismatch, in the order in which they are told: "missing", "of another shape".
  explicit MismatchList(const std::vector<std::string>& kinds) {
    for (const std::string& kind : kinds) names_.push_back({kind, {}});
  }

  // Adds a name under one of the kinds.
  void add(const std::string& kind, std::string name);
  bool empty() const;
  // Writes "2 missing: a, b; 1 of another shape: c"; at most 20 names of all kinds together.
  std::string text() const;

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> names_;  // by kind
};

}  // namespace tessera
