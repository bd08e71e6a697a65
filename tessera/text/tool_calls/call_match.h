// Matches one shape of a tool call against a text that is still growing.
#pragma once

#include <string>
#include <string_view>

#include "tessera/text/tool_calls/tool_format.h"

namespace tessera::text {

class CallMatch {
 public:
  enum class State { Open, Complete, Failed };

  // The shape must outlive this object.
  explicit CallMatch(const CallShape& shape) : shape_(&shape) {}

  // Goes on with the text, which is that of the last call with more behind it. `is_end` tells that no more
  // comes. Whatever has been looked at is not looked at again. What a text matches does not depend on where
  // it was cut.
  State advance(std::string_view text, bool is_end);

  const CallShape& shape() const { return *shape_; }
  // Returns the bytes that matched: all of the call if it is complete; if it has failed, those in which no
  // other call can begin.
  size_t size() const { return at_; }
  const std::string& name() const { return name_; }
  const std::string& value() const { return value_; }

 private:
  State match(const CallPart& part, std::string_view text, bool is_end);
  State match_mark(std::string_view mark, std::string_view text, bool is_end, bool is_needed);
  State match_name(std::string_view text, bool is_end);
  State match_value(std::string_view brackets, std::string_view text, bool is_end);
  State match_until(std::string_view mark, std::string_view text, bool is_end);

  const CallShape* shape_;
  State state_ = State::Open;
  size_t part_ = 0, at_ = 0;  // the part that is next, and where it begins
  size_t seen_ = 0;           // where a long part goes on
  int depth_ = 0;
  char quote_ = '\0', escaped_in_ = '\0';  // quote_ is a backslash behind one
  std::string name_, value_;
};

}  // namespace tessera::text
