// Ends a text that arrives in pieces at the first stop string.
#pragma once

#include <string>
#include <vector>

namespace tessera::text {

class StopStrings {
 public:
  // Empty strings are left out.
  explicit StopStrings(std::vector<std::string> strings);

  // Takes the next piece. Returns the text, not returned before, that certainly stands before any stop
  // string; an end that may begin a stop string is held back. Returns "" after has_stopped().
  std::string add(const std::string& piece);
  // Returns the text that was held back; call it when the text has ended.
  std::string finish();
  bool has_stopped() const { return has_stopped_; }
  // Returns the stop string that ended the text; "" before that.
  const std::string& stopped_by() const { return stopped_by_; }

 private:
  std::vector<std::string> strings_;
  std::string held_, stopped_by_;
  bool has_stopped_ = false;
};

}  // namespace tessera::text
