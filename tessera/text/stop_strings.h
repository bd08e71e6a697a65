// Ends a text that comes in pieces where one of some strings begins.
#pragma once

#include <string>
#include <vector>

namespace tessera::text {

class StopStrings {
 public:
  // Empty strings are left out.
  explicit StopStrings(std::vector<std::string> strings);

  // What of the text so far, up to and with `piece`, is certain to stand before a stop string and has not
  // been returned yet. Nothing more comes after has_stopped().
  std::string add(const std::string& piece);
  // The text has ended: what was held back.
  std::string finish();
  bool has_stopped() const { return has_stopped_; }

 private:
  std::vector<std::string> strings_;
  std::string held_;
  bool has_stopped_ = false;
};

}  // namespace tessera::text
